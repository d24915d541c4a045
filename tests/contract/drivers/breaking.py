"""Worlds that can be broken: "no answer" is no answer, and nothing of it is done twice."""

from abc import abstractmethod

from stateward.drivers import CallUnanswered, MachineAction, MachineHandle, MachineState
from tests.contract.drivers.case import Case, accepted, agreed, find, look, running, undone, until, until_gone


class BreakableCase(Case):
    """A world in which the tests can do harm."""

    @abstractmethod
    async def cut(self) -> None:
        """Make the provider unreachable: calls get no answer."""

    @abstractmethod
    async def mend(self) -> None:
        """Let everything work again."""

    @abstractmethod
    async def kill(self, key: str) -> None:
        """Take a machine away behind the driver's back; it ends as failed, terminated, or not listed."""

    async def lose_next_answer(self) -> bool:
        """See to it that the next create or deed is done, but not answered; false where that cannot be arranged."""
        return False


class Breaking:
    """What holds when things break; a case for it is a `BreakableCase`."""

    async def test_a_look_at_a_dead_provider_is_incomplete_and_says_why(self, case: BreakableCase) -> None:
        driver = case.driver()
        await running(driver, case)
        await case.cut()
        listing = await driver.observe()
        assert not listing.complete
        assert listing.problem

    async def test_a_create_at_a_dead_provider_is_never_taken_for_done(self, case: BreakableCase) -> None:
        driver, want = case.driver(), case.want()
        await case.cut()
        (outcome,) = await driver.create([want])
        assert isinstance(outcome, CallUnanswered) or undone(outcome), outcome

    async def test_a_deed_at_a_dead_provider_is_never_taken_for_done(self, case: BreakableCase) -> None:
        driver = case.driver()
        ref = await running(driver, case)
        await case.cut()
        (outcome,) = await driver.act(MachineAction.TERMINATE, [ref])
        assert isinstance(outcome, CallUnanswered) or undone(outcome), outcome

    async def test_after_the_cut_everything_goes_on(self, case: BreakableCase) -> None:
        driver, want = case.driver(), case.want()
        ref = await running(driver, case)
        await case.cut()
        await driver.create([want])
        await case.mend()
        await driver.create([want])
        await until(driver, case, want.key, MachineState.RUNNING)
        assert {one.key for one in (await look(driver, case)).machines} == {ref.key, want.key}

    async def test_a_create_whose_answer_was_lost_is_found_by_its_key_and_not_repeated(
        self, case: BreakableCase
    ) -> None:
        driver, want = case.driver(), case.want()
        if not await case.lose_next_answer():
            return
        (outcome,) = await driver.create([want])
        assert isinstance(outcome, CallUnanswered), outcome
        found = await until(driver, case, want.key, MachineState.RUNNING)
        (again,) = await driver.create([want])
        assert agreed(again)
        seen = (await look(driver, case)).machines
        assert [one.native_id for one in seen] == [found.native_id]

    async def test_a_machine_that_died_behind_our_back_is_not_shown_as_running(self, case: BreakableCase) -> None:
        driver = case.driver()
        ref = await running(driver, case)
        await case.kill(ref.key)
        for _ in range(500):
            seen = await find(driver, case, ref.key)
            if seen is None or seen.state in (MachineState.FAILED, MachineState.TERMINATED):
                return
            await case.pause()
        raise AssertionError(f"still shown: {seen}")

    async def test_a_machine_that_died_behind_our_back_can_be_terminated(self, case: BreakableCase) -> None:
        driver = case.driver()
        ref = await running(driver, case)
        await case.kill(ref.key)
        (outcome,) = await driver.act(MachineAction.TERMINATE, [MachineHandle(ref.key)])
        assert agreed(outcome) or undone(outcome), outcome
        await until_gone(driver, case, ref.key)

    async def test_the_others_are_untouched_when_one_dies(self, case: BreakableCase) -> None:
        driver = case.driver()
        victim, other = await running(driver, case), await running(driver, case)
        await case.kill(victim.key)
        seen = await find(driver, case, other.key)
        assert seen is not None
        assert seen.state is MachineState.RUNNING
        accepted(await driver.act(MachineAction.TERMINATE, [other]))
