"""The contract of `create`: each key creates one machine, however often and by however many callers."""

import asyncio

import pytest

from stateward.drivers import AlreadyDone, CallAccepted, MachineAction, MachineHandle, MachineState, RefusalReason
from tests.contract.drivers.driver_case import (
    DriverCase,
    accepted,
    find,
    is_done,
    list_machines,
    refused,
    wait_for_state,
    wait_until_gone,
)


class CreateContract:
    """What `check` and `create` keep to."""

    async def test_a_new_world_has_no_machines(self, case: DriverCase) -> None:
        listing = await list_machines(case.driver(), case)
        assert list(listing.machines) == []

    async def test_a_machine_is_seen_by_its_key_and_comes_to_run(self, case: DriverCase) -> None:
        driver, machine_spec = case.driver(), case.machine_spec()
        native_id = accepted(await driver.create([machine_spec]))
        seen = await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        assert seen.native_id
        assert seen.native_id == native_id or not native_id
        assert seen.native_state

    async def test_a_created_machine_is_in_the_listing_of_all(self, case: DriverCase) -> None:
        driver, machine_spec = case.driver(), case.machine_spec()
        await driver.create([machine_spec])
        await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        assert [one.key for one in (await list_machines(driver, case)).machines] == [machine_spec.key]

    async def test_the_same_key_again_makes_no_second_machine(self, case: DriverCase) -> None:
        driver, machine_spec = case.driver(), case.machine_spec()
        first = accepted(await driver.create([machine_spec]))
        (again,) = await driver.create([machine_spec])
        assert isinstance(again, (AlreadyDone, CallAccepted))
        assert again.native_id == first
        await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        assert len((await list_machines(driver, case)).machines) == 1

    async def test_the_same_key_makes_no_second_machine_when_the_first_runs(self, case: DriverCase) -> None:
        driver, machine_spec = case.driver(), case.machine_spec()
        first = accepted(await driver.create([machine_spec]))
        await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        (again,) = await driver.create([machine_spec])
        assert isinstance(again, (AlreadyDone, CallAccepted))
        assert again.native_id == first
        assert len((await list_machines(driver, case)).machines) == 1

    async def test_concurrent_creates_with_one_key_make_one_machine(self, case: DriverCase) -> None:
        driver, machine_spec = case.driver(), case.machine_spec()
        outcomes = [outcome for (outcome,) in await asyncio.gather(*(driver.create([machine_spec]) for _ in range(5)))]
        assert any(is_done(outcome) for outcome in outcomes)
        ids = {outcome.native_id for outcome in outcomes if isinstance(outcome, (CallAccepted, AlreadyDone))}
        seen = await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        assert ids - {""} <= {seen.native_id}
        assert len((await list_machines(driver, case)).machines) == 1

    async def test_two_drivers_on_one_place_make_one_machine_of_a_key(self, case: DriverCase) -> None:
        one, other, machine_spec = case.driver(), case.driver(), case.machine_spec()
        await asyncio.gather(one.create([machine_spec]), other.create([machine_spec]))
        await wait_for_state(one, case, machine_spec.key, MachineState.RUNNING)
        assert len((await list_machines(other, case)).machines) == 1

    async def test_one_call_that_names_a_key_twice_makes_one_machine(self, case: DriverCase) -> None:
        driver, machine_spec = case.driver(), case.machine_spec()
        outcomes = await driver.create([machine_spec, machine_spec])
        assert len(outcomes) == 2
        assert all(is_done(outcome) for outcome in outcomes)
        await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        assert len((await list_machines(driver, case)).machines) == 1

    async def test_a_key_whose_machine_was_terminated_makes_no_running_one(self, case: DriverCase) -> None:
        driver, machine_spec = case.driver(), case.machine_spec()
        native_id = accepted(await driver.create([machine_spec]))
        await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        await driver.act(MachineAction.TERMINATE, [MachineHandle(machine_spec.key, native_id)])
        await wait_until_gone(driver, case, machine_spec.key)
        await driver.create([machine_spec])
        seen = await find(driver, case, machine_spec.key)
        assert seen is None or seen.state is MachineState.TERMINATED

    async def test_what_exists_passes_the_check(self, case: DriverCase) -> None:
        assert await case.driver().check(case.spec, case.image) is None

    @pytest.mark.parametrize("odd", ["spec", "image"])
    async def test_what_does_not_exist_is_refused_by_the_check(self, case: DriverCase, odd: str) -> None:
        spec, image = {"spec": ("no-such-spec", case.image), "image": (case.spec, "no-such-image")}[odd]
        assert refused(await case.driver().check(spec, image), RefusalReason.INVALID, RefusalReason.NOT_FOUND)

    async def test_a_check_makes_nothing(self, case: DriverCase) -> None:
        driver = case.driver()
        await driver.check(case.spec, case.image)
        await driver.check("no-such-spec", "no-such-image")
        assert list((await list_machines(driver, case)).machines) == []
