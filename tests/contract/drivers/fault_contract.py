"""The contract under faults: a lost answer is neither a yes nor a no, and nothing is done twice."""

from abc import abstractmethod

from stateward.drivers import CallUnanswered, MachineAction, MachineHandle, MachineState
from tests.contract.drivers.driver_case import (
    DriverCase,
    accepted,
    find,
    is_done,
    is_not_done,
    list_machines,
    start_machine,
    wait_for_state,
    wait_until_gone,
)


class BreakableDriverCase(DriverCase):
    """A driver whose provider the tests can break."""

    @abstractmethod
    async def cut(self) -> None:
        """Make the provider unreachable: calls get no answer."""

    @abstractmethod
    async def mend(self) -> None:
        """Make the provider reachable again."""

    @abstractmethod
    async def kill(self, key: str) -> None:
        """End a machine out of band; it is then failed, terminated, or not listed."""

    async def lose_next_answer(self) -> bool:
        """Lose the answer to the next create or action; returns False if the case cannot do that."""
        return False


class FaultContract:
    """What holds under faults; its case is a `BreakableDriverCase`."""

    async def test_a_look_at_a_dead_provider_is_incomplete_and_says_why(self, case: BreakableDriverCase) -> None:
        driver = case.driver()
        await start_machine(driver, case)
        await case.cut()
        listing = await driver.observe()
        assert not listing.complete
        assert listing.problem

    async def test_a_create_at_a_dead_provider_is_never_taken_for_done(self, case: BreakableDriverCase) -> None:
        driver, machine_spec = case.driver(), case.machine_spec()
        await case.cut()
        (outcome,) = await driver.create([machine_spec])
        assert isinstance(outcome, CallUnanswered) or is_not_done(outcome), outcome

    async def test_a_deed_at_a_dead_provider_is_never_taken_for_done(self, case: BreakableDriverCase) -> None:
        driver = case.driver()
        handle = await start_machine(driver, case)
        await case.cut()
        (outcome,) = await driver.act(MachineAction.TERMINATE, [handle])
        assert isinstance(outcome, CallUnanswered) or is_not_done(outcome), outcome

    async def test_after_the_cut_everything_goes_on(self, case: BreakableDriverCase) -> None:
        driver, machine_spec = case.driver(), case.machine_spec()
        handle = await start_machine(driver, case)
        await case.cut()
        await driver.create([machine_spec])
        await case.mend()
        await driver.create([machine_spec])
        await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        assert {one.key for one in (await list_machines(driver, case)).machines} == {handle.key, machine_spec.key}

    async def test_a_create_whose_answer_was_lost_is_found_by_its_key_and_not_repeated(
        self, case: BreakableDriverCase
    ) -> None:
        driver, machine_spec = case.driver(), case.machine_spec()
        if not await case.lose_next_answer():
            return
        (outcome,) = await driver.create([machine_spec])
        assert isinstance(outcome, CallUnanswered), outcome
        found = await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        (again,) = await driver.create([machine_spec])
        assert is_done(again)
        seen = (await list_machines(driver, case)).machines
        assert [one.native_id for one in seen] == [found.native_id]

    async def test_a_machine_that_died_behind_our_back_is_not_shown_as_running(self, case: BreakableDriverCase) -> None:
        driver = case.driver()
        handle = await start_machine(driver, case)
        await case.kill(handle.key)
        for _ in range(500):
            seen = await find(driver, case, handle.key)
            if seen is None or seen.state in (MachineState.FAILED, MachineState.TERMINATED):
                return
            await case.pause()
        raise AssertionError(f"still shown: {seen}")

    async def test_a_machine_that_died_behind_our_back_can_be_terminated(self, case: BreakableDriverCase) -> None:
        driver = case.driver()
        handle = await start_machine(driver, case)
        await case.kill(handle.key)
        (outcome,) = await driver.act(MachineAction.TERMINATE, [MachineHandle(handle.key)])
        assert is_done(outcome) or is_not_done(outcome), outcome
        await wait_until_gone(driver, case, handle.key)

    async def test_the_others_are_untouched_when_one_dies(self, case: BreakableDriverCase) -> None:
        driver = case.driver()
        victim, other = await start_machine(driver, case), await start_machine(driver, case)
        await case.kill(victim.key)
        seen = await find(driver, case, other.key)
        assert seen is not None
        assert seen.state is MachineState.RUNNING
        accepted(await driver.act(MachineAction.TERMINATE, [other]))
