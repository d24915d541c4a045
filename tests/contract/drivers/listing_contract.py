"""The contract of `observe`: what a listing shows, and when absence means something."""

from stateward.drivers import MachineAction, MachineHandle, MachineState
from tests.contract.drivers.driver_case import DriverCase, list_machines, start_machine, wait_for_state, wait_until_gone


class ListingContract:
    """What holds for listings of machines."""

    async def test_a_look_at_some_keys_shows_those_alone(self, case: DriverCase) -> None:
        driver = case.driver()
        machine_specs = [case.machine_spec() for _ in range(3)]
        await driver.create(machine_specs)
        for machine_spec in machine_specs:
            await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        chosen = {machine_specs[0].key, machine_specs[2].key}
        assert {one.key for one in (await list_machines(driver, case, chosen)).machines} == chosen
        assert {one.key for one in (await list_machines(driver, case)).machines} == {
            machine_spec.key for machine_spec in machine_specs
        }

    async def test_a_look_at_an_unknown_key_is_complete_and_empty(self, case: DriverCase) -> None:
        listing = await list_machines(case.driver(), case, ["no-such-key"])
        assert (list(listing.machines), listing.complete) == ([], True)

    async def test_a_look_at_no_keys_shows_nothing(self, case: DriverCase) -> None:
        driver = case.driver()
        await start_machine(driver, case)
        listing = await list_machines(driver, case, [])
        assert (list(listing.machines), listing.complete) == ([], True)

    async def test_no_machine_is_listed_twice(self, case: DriverCase) -> None:
        driver = case.driver()
        await driver.create([case.machine_spec() for _ in range(4)])
        seen = (await list_machines(driver, case)).machines
        assert len({one.key for one in seen}) == len({one.native_id for one in seen}) == len(seen)

    async def test_an_observation_tells_the_name_the_provider_s_own_word_and_where_to_log_in(
        self, case: DriverCase
    ) -> None:
        driver, machine_spec = case.driver(), case.machine_spec()
        await driver.create([machine_spec])
        seen = await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        assert seen.name in (machine_spec.name, machine_spec.key)
        assert seen.native_state
        assert seen.ssh_port == case.ssh_port

    async def test_a_terminated_machine_is_shown_as_such_or_no_longer_at_all(self, case: DriverCase) -> None:
        driver = case.driver()
        handle = await start_machine(driver, case)
        await driver.act(MachineAction.TERMINATE, [MachineHandle(handle.key)])
        await wait_until_gone(driver, case, handle.key)
        assert all(one.state is MachineState.TERMINATED for one in (await list_machines(driver, case)).machines)
