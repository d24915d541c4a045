"""The contract between successive drivers of a region: machines stay, calls are counted, commands run."""

import asyncio

import pytest

from stateward.drivers import CommandFailed, MachineAction, MachineHandle, MachineState
from tests.contract.drivers.driver_case import (
    DriverCase,
    accepted,
    find,
    start_machine,
    wait_for_state,
    wait_until_gone,
)


class TakeoverContract:
    """What holds for a second driver of the same region, for the meter and for commands."""

    async def test_closing_leaves_machines_alone_and_the_next_driver_finds_them(self, case: DriverCase) -> None:
        first = case.driver()
        handle = await start_machine(first, case)
        await first.close()
        second = case.driver()
        seen = await find(second, case, handle.key)
        assert seen is not None
        assert (seen.native_id, seen.state) == (handle.native_id, MachineState.RUNNING)

    async def test_the_next_driver_can_do_what_the_first_could(self, case: DriverCase) -> None:
        first = case.driver()
        handle = await start_machine(first, case)
        await first.close()
        second = case.driver()
        accepted(await second.act(MachineAction.TERMINATE, [MachineHandle(handle.key)]))
        await wait_until_gone(second, case, handle.key)

    async def test_a_key_that_another_driver_used_makes_no_second_machine(self, case: DriverCase) -> None:
        first, machine_spec = case.driver(), case.machine_spec()
        native_id = accepted(await first.create([machine_spec]))
        await first.close()
        second = case.driver()
        await second.create([machine_spec])
        assert (await wait_for_state(second, case, machine_spec.key, MachineState.RUNNING)).native_id == native_id

    async def test_closing_twice_is_closing_once(self, case: DriverCase) -> None:
        driver = case.driver()
        await driver.close()
        await driver.close()

    async def test_every_call_is_counted(self, case: DriverCase) -> None:
        driver, machine_spec = case.driver(), case.machine_spec()
        counts = [case.calls.total()]
        await driver.create([machine_spec])
        counts.append(case.calls.total())
        await driver.observe()
        counts.append(case.calls.total())
        await driver.act(MachineAction.TERMINATE, [MachineHandle(machine_spec.key)])
        counts.append(case.calls.total())
        assert counts == sorted(set(counts)), case.calls

    async def test_a_command_runs_where_there_is_a_way_in(self, case: DriverCase) -> None:
        driver = case.driver()
        handle = await start_machine(driver, case)
        if driver.caps.runs_commands:
            assert "hello" in await driver.run(handle, "echo hello", "root", 30.0)
        else:
            with pytest.raises(OSError):  # noqa: PT011 - any will do
                await driver.run(handle, "echo hello", "root", 30.0)

    async def test_a_command_that_ends_badly_tells_its_status(self, case: DriverCase) -> None:
        driver = case.driver()
        if not driver.caps.runs_commands:
            return
        handle = await start_machine(driver, case)
        with pytest.raises(CommandFailed) as raised:
            await driver.run(handle, "exit 3", "root", 30.0)
        assert raised.value.status == 3

    async def test_a_command_does_not_run_on_a_machine_that_is_not_there(self, case: DriverCase) -> None:
        with pytest.raises((OSError, TimeoutError)):
            await case.driver().run(MachineHandle("no-such-key"), "echo hello", "root", 1.0)

    async def test_changes_are_hinted_at_where_there_are_events(self, case: DriverCase) -> None:
        driver = case.driver()
        heard: list[str] = []

        async def listen() -> None:
            async for key in driver.watch():
                heard.append(key)  # noqa: PERF401 - it is looked at while it grows

        listening = asyncio.create_task(listen())
        await asyncio.sleep(0)
        handle = await start_machine(driver, case)
        for _ in range(100):
            if heard or not driver.caps.has_events:
                break
            await case.pause()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        assert set(heard) == ({handle.key} if driver.caps.has_events else set())
