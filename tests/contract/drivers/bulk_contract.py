"""The contract of calls with many machines: outcomes in order, and a bad machine does not fail the others."""

from msgspec.structs import replace

from stateward.drivers import MachineAction, MachineHandle, MachineState, RefusalReason, Suspension
from tests.contract.drivers.driver_case import (
    DriverCase,
    is_done,
    list_machines,
    refused,
    wait_for_state,
    wait_until_gone,
)


class BulkContract:
    """What holds for calls with many machines."""

    async def test_outcomes_come_in_the_order_of_the_wants(self, case: DriverCase) -> None:
        driver = case.driver()
        machine_specs = [case.machine_spec() for _ in range(5)]
        outcomes = await driver.create(machine_specs)
        assert [outcome.key for outcome in outcomes] == [machine_spec.key for machine_spec in machine_specs]

    async def test_a_bad_want_among_good_ones_is_refused_alone(self, case: DriverCase) -> None:
        driver = case.driver()
        good, bad, fine = case.machine_spec(), replace(case.machine_spec(), spec="no-such-spec"), case.machine_spec()
        outcomes = await driver.create([good, bad, fine])
        assert [outcome.key for outcome in outcomes] == [good.key, bad.key, fine.key]
        assert refused(outcomes[1], RefusalReason.INVALID, RefusalReason.NOT_FOUND)
        for machine_spec in (good, fine):
            await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        assert {one.key for one in (await list_machines(driver, case)).machines} == {good.key, fine.key}

    async def test_an_unknown_machine_among_known_ones_is_refused_alone(self, case: DriverCase) -> None:
        driver = case.driver()
        machine_specs = [case.machine_spec(), case.machine_spec()]
        await driver.create(machine_specs)
        for machine_spec in machine_specs:
            await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        handles = [
            MachineHandle(machine_specs[0].key),
            MachineHandle("no-such-key"),
            MachineHandle(machine_specs[1].key),
        ]
        outcomes = await driver.act(MachineAction.TERMINATE, handles)
        assert [outcome.key for outcome in outcomes] == [handle.key for handle in handles]
        assert refused(outcomes[1], RefusalReason.NOT_FOUND)
        for machine_spec in machine_specs:
            await wait_until_gone(driver, case, machine_spec.key)

    async def test_machines_in_different_states_each_get_their_own_answer(self, case: DriverCase) -> None:
        driver = case.driver()
        if driver.caps.suspension is Suspension.NONE:
            return
        machine_specs = [case.machine_spec(), case.machine_spec()]
        await driver.create(machine_specs)
        for machine_spec in machine_specs:
            await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        await driver.act(MachineAction.SUSPEND, [MachineHandle(machine_specs[0].key)])
        await wait_for_state(driver, case, machine_specs[0].key, MachineState.SUSPENDED)
        outcomes = await driver.act(
            MachineAction.SUSPEND, [MachineHandle(machine_spec.key) for machine_spec in machine_specs]
        )
        assert all(is_done(outcome) for outcome in outcomes)
        for machine_spec in machine_specs:
            await wait_for_state(driver, case, machine_spec.key, MachineState.SUSPENDED)

    async def test_nothing_asked_is_nothing_answered(self, case: DriverCase) -> None:
        driver = case.driver()
        assert list(await driver.create([])) == []
        assert list(await driver.act(MachineAction.SUSPEND, [])) == []

    async def test_more_than_one_portion_can_be_asked_for_at_once(self, case: DriverCase) -> None:
        driver = case.driver()
        machine_specs = [case.machine_spec() for _ in range(min(driver.caps.max_bulk + 2, 12))]
        assert all(is_done(outcome) for outcome in await driver.create(machine_specs))
        for machine_spec in machine_specs:
            await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        assert {one.key for one in (await list_machines(driver, case)).machines} == {
            machine_spec.key for machine_spec in machine_specs
        }
