"""Many at once: outcomes in order, and one that cannot be had does not spoil the others."""

from msgspec.structs import replace

from stateward.drivers import MachineAction, MachineHandle, MachineState, RefusalReason, Suspension
from tests.contract.drivers.case import Case, agreed, look, refused, until, until_gone


class Bulk:
    """What calls for many machines keep to."""

    async def test_outcomes_come_in_the_order_of_the_wants(self, case: Case) -> None:
        driver = case.driver()
        wants = [case.want() for _ in range(5)]
        outcomes = await driver.create(wants)
        assert [outcome.key for outcome in outcomes] == [want.key for want in wants]

    async def test_a_bad_want_among_good_ones_is_refused_alone(self, case: Case) -> None:
        driver = case.driver()
        good, bad, fine = case.want(), replace(case.want(), spec="no-such-spec"), case.want()
        outcomes = await driver.create([good, bad, fine])
        assert [outcome.key for outcome in outcomes] == [good.key, bad.key, fine.key]
        assert refused(outcomes[1], RefusalReason.INVALID, RefusalReason.NOT_FOUND)
        for want in (good, fine):
            await until(driver, case, want.key, MachineState.RUNNING)
        assert {one.key for one in (await look(driver, case)).machines} == {good.key, fine.key}

    async def test_an_unknown_machine_among_known_ones_is_refused_alone(self, case: Case) -> None:
        driver = case.driver()
        wants = [case.want(), case.want()]
        await driver.create(wants)
        for want in wants:
            await until(driver, case, want.key, MachineState.RUNNING)
        refs = [MachineHandle(wants[0].key), MachineHandle("no-such-key"), MachineHandle(wants[1].key)]
        outcomes = await driver.act(MachineAction.TERMINATE, refs)
        assert [outcome.key for outcome in outcomes] == [ref.key for ref in refs]
        assert refused(outcomes[1], RefusalReason.NOT_FOUND)
        for want in wants:
            await until_gone(driver, case, want.key)

    async def test_machines_in_different_states_each_get_their_own_answer(self, case: Case) -> None:
        driver = case.driver()
        if driver.caps.suspension is Suspension.NONE:
            return
        wants = [case.want(), case.want()]
        await driver.create(wants)
        for want in wants:
            await until(driver, case, want.key, MachineState.RUNNING)
        await driver.act(MachineAction.SUSPEND, [MachineHandle(wants[0].key)])
        await until(driver, case, wants[0].key, MachineState.SUSPENDED)
        outcomes = await driver.act(MachineAction.SUSPEND, [MachineHandle(want.key) for want in wants])
        assert all(agreed(outcome) for outcome in outcomes)
        for want in wants:
            await until(driver, case, want.key, MachineState.SUSPENDED)

    async def test_nothing_asked_is_nothing_answered(self, case: Case) -> None:
        driver = case.driver()
        assert list(await driver.create([])) == []
        assert list(await driver.act(MachineAction.SUSPEND, [])) == []

    async def test_more_than_one_portion_can_be_asked_for_at_once(self, case: Case) -> None:
        driver = case.driver()
        wants = [case.want() for _ in range(min(driver.caps.max_bulk + 2, 12))]
        assert all(agreed(outcome) for outcome in await driver.create(wants))
        for want in wants:
            await until(driver, case, want.key, MachineState.RUNNING)
        assert {one.key for one in (await look(driver, case)).machines} == {want.key for want in wants}
