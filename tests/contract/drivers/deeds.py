"""Deeds: each reaches its state, is harmless when repeated, and is refused where it makes no sense."""

import asyncio

import pytest

from stateward.drivers import CallAccepted, MachineAction, MachineHandle, MachineState, RefusalReason, Suspension
from tests.contract.drivers.case import Case, agreed, find, refused, running, until, until_gone

STAYS = 10
"""How often a test looks to see that nothing happens."""


class Deeds:
    """What `act` keeps to."""

    async def test_suspend_and_resume_reach_their_states(self, case: Case) -> None:
        driver = case.driver()
        ref = await running(driver, case)
        (outcome,) = await driver.act(MachineAction.SUSPEND, [ref])
        if driver.caps.suspension is Suspension.NONE:
            assert refused(outcome, RefusalReason.UNABLE)
            return
        assert isinstance(outcome, CallAccepted)
        await until(driver, case, ref.key, MachineState.SUSPENDED)
        (outcome,) = await driver.act(MachineAction.RESUME, [ref])
        assert isinstance(outcome, CallAccepted)
        await until(driver, case, ref.key, MachineState.RUNNING)

    async def test_a_machine_can_be_named_by_its_key_alone(self, case: Case) -> None:
        driver = case.driver()
        ref = await running(driver, case)
        (outcome,) = await driver.act(MachineAction.TERMINATE, [MachineHandle(ref.key)])
        assert isinstance(outcome, CallAccepted)
        await until_gone(driver, case, ref.key)

    async def test_a_suspended_machine_keeps_its_identity(self, case: Case) -> None:
        driver = case.driver()
        if driver.caps.suspension is Suspension.NONE:
            return
        ref = await running(driver, case)
        before = await find(driver, case, ref.key)
        await driver.act(MachineAction.SUSPEND, [ref])
        await until(driver, case, ref.key, MachineState.SUSPENDED)
        await driver.act(MachineAction.RESUME, [ref])
        after = await until(driver, case, ref.key, MachineState.RUNNING)
        assert before is not None
        assert before.native_id == after.native_id

    async def test_reboot_ends_in_running(self, case: Case) -> None:
        driver = case.driver()
        ref = await running(driver, case)
        (outcome,) = await driver.act(MachineAction.REBOOT, [MachineHandle(ref.key, ref.native_id, "one")])
        if not driver.caps.can_reboot:
            assert refused(outcome, RefusalReason.UNABLE)
            return
        assert isinstance(outcome, CallAccepted)
        await until(driver, case, ref.key, MachineState.RUNNING)

    async def test_a_second_reboot_with_another_token_is_a_second_reboot(self, case: Case) -> None:
        driver = case.driver()
        if not driver.caps.can_reboot:
            return
        ref = await running(driver, case)
        for number in (1, 2):
            (outcome,) = await driver.act(
                MachineAction.REBOOT, [MachineHandle(ref.key, ref.native_id, f"token-{number}")]
            )
            assert isinstance(outcome, CallAccepted)
            seen = await until(driver, case, ref.key, MachineState.RUNNING)
        assert case.reboots(seen) in (2, None)

    async def test_a_reboot_that_is_repeated_with_its_token_is_one_reboot(self, case: Case) -> None:
        driver = case.driver()
        if not driver.caps.can_reboot:
            return
        ref = await running(driver, case)
        for _ in range(3):
            (outcome,) = await driver.act(MachineAction.REBOOT, [MachineHandle(ref.key, ref.native_id, "token")])
            assert agreed(outcome)
            seen = await until(driver, case, ref.key, MachineState.RUNNING)
        assert case.reboots(seen) in (1, None)

    async def test_a_listing_shows_which_reboot_was_done_where_the_driver_says_so(self, case: Case) -> None:
        driver = case.driver()
        if not driver.caps.lists_reboot_tokens:
            return
        ref = await running(driver, case)
        before = await find(driver, case, ref.key)
        await driver.act(MachineAction.REBOOT, [MachineHandle(ref.key, ref.native_id, "token")])
        after = await until(driver, case, ref.key, MachineState.RUNNING)
        assert before is not None
        assert ("token" in before.reboot_tokens, "token" in after.reboot_tokens, after.unconfirmed_reboot) == (
            False,
            True,
            "",
        )

    async def test_terminate_is_final(self, case: Case) -> None:
        driver = case.driver()
        ref = await running(driver, case)
        (outcome,) = await driver.act(MachineAction.TERMINATE, [ref])
        assert isinstance(outcome, CallAccepted)
        await until_gone(driver, case, ref.key)
        for deed in (MachineAction.RESUME, MachineAction.SUSPEND, MachineAction.REBOOT):
            (outcome,) = await driver.act(deed, [ref])
            assert refused(outcome, RefusalReason.CONFLICT, RefusalReason.NOT_FOUND, RefusalReason.UNABLE), deed
        for _ in range(STAYS):
            seen = await find(driver, case, ref.key)
            assert seen is None or seen.state is MachineState.TERMINATED
            await case.pause()

    async def test_a_suspended_machine_can_be_terminated(self, case: Case) -> None:
        driver = case.driver()
        if driver.caps.suspension is Suspension.NONE:
            return
        ref = await running(driver, case)
        await driver.act(MachineAction.SUSPEND, [ref])
        await until(driver, case, ref.key, MachineState.SUSPENDED)
        (outcome,) = await driver.act(MachineAction.TERMINATE, [ref])
        assert isinstance(outcome, CallAccepted)
        await until_gone(driver, case, ref.key)

    async def test_a_machine_that_is_just_being_made_can_be_terminated(self, case: Case) -> None:
        driver, want = case.driver(), case.want()
        await driver.create([want])
        for _ in range(STAYS):  # some providers want it to be up first, and say so
            (outcome,) = await driver.act(MachineAction.TERMINATE, [MachineHandle(want.key)])
            if agreed(outcome):
                break
            assert refused(outcome, RefusalReason.CONFLICT), outcome
            await until(driver, case, want.key, MachineState.RUNNING)
        await until_gone(driver, case, want.key)

    @pytest.mark.parametrize("deed", [MachineAction.SUSPEND, MachineAction.TERMINATE])
    async def test_a_deed_that_is_done_is_harmless_when_repeated(self, case: Case, deed: MachineAction) -> None:
        driver = case.driver()
        ref = await running(driver, case)
        (outcome,) = await driver.act(deed, [ref])
        if refused(outcome, RefusalReason.UNABLE):
            return
        for _ in range(3):
            (outcome,) = await driver.act(deed, [ref])
            assert agreed(outcome) or refused(outcome, RefusalReason.CONFLICT, RefusalReason.NOT_FOUND), outcome
        if deed is MachineAction.SUSPEND:
            await until(driver, case, ref.key, MachineState.SUSPENDED)
            (outcome,) = await driver.act(deed, [ref])
            assert agreed(outcome), outcome
        else:
            await until_gone(driver, case, ref.key)
            (outcome,) = await driver.act(deed, [ref])
            assert agreed(outcome) or refused(outcome, RefusalReason.NOT_FOUND), outcome

    async def test_resuming_what_runs_is_harmless(self, case: Case) -> None:
        driver = case.driver()
        ref = await running(driver, case)
        (outcome,) = await driver.act(MachineAction.RESUME, [ref])
        assert agreed(outcome) or refused(outcome, RefusalReason.CONFLICT, RefusalReason.UNABLE), outcome
        await until(driver, case, ref.key, MachineState.RUNNING)

    @pytest.mark.parametrize("deed", list(MachineAction))
    async def test_a_deed_on_a_machine_that_is_just_being_made_gets_an_answer(
        self, case: Case, deed: MachineAction
    ) -> None:
        driver, want = case.driver(), case.want()
        await driver.create([want])
        (outcome,) = await driver.act(deed, [MachineHandle(want.key, None, "token")])
        assert agreed(outcome) or refused(outcome, RefusalReason.CONFLICT, RefusalReason.UNABLE), outcome

    async def test_rebooting_what_is_suspended_is_refused(self, case: Case) -> None:
        driver = case.driver()
        if driver.caps.suspension is Suspension.NONE or not driver.caps.can_reboot:
            return
        ref = await running(driver, case)
        await driver.act(MachineAction.SUSPEND, [ref])
        await until(driver, case, ref.key, MachineState.SUSPENDED)
        (outcome,) = await driver.act(MachineAction.REBOOT, [ref])
        assert refused(outcome, RefusalReason.CONFLICT), outcome
        await until(driver, case, ref.key, MachineState.SUSPENDED)

    @pytest.mark.parametrize("deed", list(MachineAction))
    async def test_deeds_on_unknown_machines_find_nothing(self, case: Case, deed: MachineAction) -> None:
        (outcome,) = await case.driver().act(deed, [MachineHandle("no-such-key", None, "token")])
        assert refused(outcome, RefusalReason.NOT_FOUND, RefusalReason.UNABLE), outcome

    async def test_concurrent_deeds_of_every_sort_leave_a_machine_in_order(self, case: Case) -> None:
        driver = case.driver()
        ref = await running(driver, case)
        hasty = [MachineAction.SUSPEND, MachineAction.REBOOT, MachineAction.RESUME, MachineAction.SUSPEND]
        await asyncio.gather(
            *(driver.act(deed, [MachineHandle(ref.key, ref.native_id, f"t-{deed}")]) for deed in hasty)
        )
        seen = await until(driver, case, ref.key, MachineState.RUNNING, MachineState.SUSPENDED)
        assert seen.native_id == ref.native_id
        (outcome,) = await driver.act(MachineAction.TERMINATE, [ref])
        assert agreed(outcome) or refused(outcome, RefusalReason.CONFLICT), outcome
