"""The contract of `act`: an action reaches its state, may be repeated, and is refused in a wrong state."""

import asyncio

import pytest

from stateward.drivers import CallAccepted, MachineAction, MachineHandle, MachineState, RefusalReason, Suspension
from tests.contract.drivers.driver_case import (
    DriverCase,
    find,
    is_done,
    refused,
    start_machine,
    wait_for_state,
    wait_until_gone,
)

CHECKS = 10
"""How many listings a test checks to see that nothing happens."""


class ActionContract:
    """What holds for actions on machines."""

    async def test_suspend_and_resume_reach_their_states(self, case: DriverCase) -> None:
        driver = case.driver()
        handle = await start_machine(driver, case)
        (outcome,) = await driver.act(MachineAction.SUSPEND, [handle])
        if driver.caps.suspension is Suspension.NONE:
            assert refused(outcome, RefusalReason.UNABLE)
            return
        assert isinstance(outcome, CallAccepted)
        await wait_for_state(driver, case, handle.key, MachineState.SUSPENDED)
        (outcome,) = await driver.act(MachineAction.RESUME, [handle])
        assert isinstance(outcome, CallAccepted)
        await wait_for_state(driver, case, handle.key, MachineState.RUNNING)

    async def test_a_machine_can_be_named_by_its_key_alone(self, case: DriverCase) -> None:
        driver = case.driver()
        handle = await start_machine(driver, case)
        (outcome,) = await driver.act(MachineAction.TERMINATE, [MachineHandle(handle.key)])
        assert isinstance(outcome, CallAccepted)
        await wait_until_gone(driver, case, handle.key)

    async def test_a_suspended_machine_keeps_its_identity(self, case: DriverCase) -> None:
        driver = case.driver()
        if driver.caps.suspension is Suspension.NONE:
            return
        handle = await start_machine(driver, case)
        before = await find(driver, case, handle.key)
        await driver.act(MachineAction.SUSPEND, [handle])
        await wait_for_state(driver, case, handle.key, MachineState.SUSPENDED)
        await driver.act(MachineAction.RESUME, [handle])
        after = await wait_for_state(driver, case, handle.key, MachineState.RUNNING)
        assert before is not None
        assert before.native_id == after.native_id

    async def test_reboot_ends_in_running(self, case: DriverCase) -> None:
        driver = case.driver()
        handle = await start_machine(driver, case)
        (outcome,) = await driver.act(MachineAction.REBOOT, [MachineHandle(handle.key, handle.native_id, "one")])
        if not driver.caps.can_reboot:
            assert refused(outcome, RefusalReason.UNABLE)
            return
        assert isinstance(outcome, CallAccepted)
        await wait_for_state(driver, case, handle.key, MachineState.RUNNING)

    async def test_a_second_reboot_with_another_token_is_a_second_reboot(self, case: DriverCase) -> None:
        driver = case.driver()
        if not driver.caps.can_reboot:
            return
        handle = await start_machine(driver, case)
        for number in (1, 2):
            (outcome,) = await driver.act(
                MachineAction.REBOOT, [MachineHandle(handle.key, handle.native_id, f"token-{number}")]
            )
            assert isinstance(outcome, CallAccepted)
            seen = await wait_for_state(driver, case, handle.key, MachineState.RUNNING)
        assert case.reboots(seen) in (2, None)

    async def test_a_reboot_that_is_repeated_with_its_token_is_one_reboot(self, case: DriverCase) -> None:
        driver = case.driver()
        if not driver.caps.can_reboot:
            return
        handle = await start_machine(driver, case)
        for _ in range(3):
            (outcome,) = await driver.act(MachineAction.REBOOT, [MachineHandle(handle.key, handle.native_id, "token")])
            assert is_done(outcome)
            seen = await wait_for_state(driver, case, handle.key, MachineState.RUNNING)
        assert case.reboots(seen) in (1, None)

    async def test_a_listing_shows_which_reboot_was_done_where_the_driver_says_so(self, case: DriverCase) -> None:
        driver = case.driver()
        if not driver.caps.lists_reboot_tokens:
            return
        handle = await start_machine(driver, case)
        before = await find(driver, case, handle.key)
        await driver.act(MachineAction.REBOOT, [MachineHandle(handle.key, handle.native_id, "token")])
        after = await wait_for_state(driver, case, handle.key, MachineState.RUNNING)
        assert before is not None
        assert ("token" in before.reboot_tokens, "token" in after.reboot_tokens, after.unconfirmed_reboot) == (
            False,
            True,
            "",
        )

    async def test_terminate_is_final(self, case: DriverCase) -> None:
        driver = case.driver()
        handle = await start_machine(driver, case)
        (outcome,) = await driver.act(MachineAction.TERMINATE, [handle])
        assert isinstance(outcome, CallAccepted)
        await wait_until_gone(driver, case, handle.key)
        for action in (MachineAction.RESUME, MachineAction.SUSPEND, MachineAction.REBOOT):
            (outcome,) = await driver.act(action, [handle])
            assert refused(outcome, RefusalReason.CONFLICT, RefusalReason.NOT_FOUND, RefusalReason.UNABLE), action
        for _ in range(CHECKS):
            seen = await find(driver, case, handle.key)
            assert seen is None or seen.state is MachineState.TERMINATED
            await case.pause()

    async def test_a_suspended_machine_can_be_terminated(self, case: DriverCase) -> None:
        driver = case.driver()
        if driver.caps.suspension is Suspension.NONE:
            return
        handle = await start_machine(driver, case)
        await driver.act(MachineAction.SUSPEND, [handle])
        await wait_for_state(driver, case, handle.key, MachineState.SUSPENDED)
        (outcome,) = await driver.act(MachineAction.TERMINATE, [handle])
        assert isinstance(outcome, CallAccepted)
        await wait_until_gone(driver, case, handle.key)

    async def test_a_machine_that_is_just_being_made_can_be_terminated(self, case: DriverCase) -> None:
        driver, machine_spec = case.driver(), case.machine_spec()
        await driver.create([machine_spec])
        for _ in range(CHECKS):  # some providers machine_spec it to be up first, and say so
            (outcome,) = await driver.act(MachineAction.TERMINATE, [MachineHandle(machine_spec.key)])
            if is_done(outcome):
                break
            assert refused(outcome, RefusalReason.CONFLICT), outcome
            await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        await wait_until_gone(driver, case, machine_spec.key)

    @pytest.mark.parametrize("action", [MachineAction.SUSPEND, MachineAction.TERMINATE])
    async def test_a_deed_that_is_done_is_harmless_when_repeated(self, case: DriverCase, action: MachineAction) -> None:
        driver = case.driver()
        handle = await start_machine(driver, case)
        (outcome,) = await driver.act(action, [handle])
        if refused(outcome, RefusalReason.UNABLE):
            return
        for _ in range(3):
            (outcome,) = await driver.act(action, [handle])
            assert is_done(outcome) or refused(outcome, RefusalReason.CONFLICT, RefusalReason.NOT_FOUND), outcome
        if action is MachineAction.SUSPEND:
            await wait_for_state(driver, case, handle.key, MachineState.SUSPENDED)
            (outcome,) = await driver.act(action, [handle])
            assert is_done(outcome), outcome
        else:
            await wait_until_gone(driver, case, handle.key)
            (outcome,) = await driver.act(action, [handle])
            assert is_done(outcome) or refused(outcome, RefusalReason.NOT_FOUND), outcome

    async def test_resuming_what_runs_is_harmless(self, case: DriverCase) -> None:
        driver = case.driver()
        handle = await start_machine(driver, case)
        (outcome,) = await driver.act(MachineAction.RESUME, [handle])
        assert is_done(outcome) or refused(outcome, RefusalReason.CONFLICT, RefusalReason.UNABLE), outcome
        await wait_for_state(driver, case, handle.key, MachineState.RUNNING)

    @pytest.mark.parametrize("action", list(MachineAction))
    async def test_a_deed_on_a_machine_that_is_just_being_made_gets_an_answer(
        self, case: DriverCase, action: MachineAction
    ) -> None:
        driver, machine_spec = case.driver(), case.machine_spec()
        await driver.create([machine_spec])
        (outcome,) = await driver.act(action, [MachineHandle(machine_spec.key, None, "token")])
        assert is_done(outcome) or refused(outcome, RefusalReason.CONFLICT, RefusalReason.UNABLE), outcome

    async def test_rebooting_what_is_suspended_is_refused(self, case: DriverCase) -> None:
        driver = case.driver()
        if driver.caps.suspension is Suspension.NONE or not driver.caps.can_reboot:
            return
        handle = await start_machine(driver, case)
        await driver.act(MachineAction.SUSPEND, [handle])
        await wait_for_state(driver, case, handle.key, MachineState.SUSPENDED)
        (outcome,) = await driver.act(MachineAction.REBOOT, [handle])
        assert refused(outcome, RefusalReason.CONFLICT), outcome
        await wait_for_state(driver, case, handle.key, MachineState.SUSPENDED)

    @pytest.mark.parametrize("action", list(MachineAction))
    async def test_deeds_on_unknown_machines_find_nothing(self, case: DriverCase, action: MachineAction) -> None:
        (outcome,) = await case.driver().act(action, [MachineHandle("no-such-key", None, "token")])
        assert refused(outcome, RefusalReason.NOT_FOUND, RefusalReason.UNABLE), outcome

    async def test_concurrent_deeds_of_every_sort_leave_a_machine_in_order(self, case: DriverCase) -> None:
        driver = case.driver()
        handle = await start_machine(driver, case)
        hasty = [MachineAction.SUSPEND, MachineAction.REBOOT, MachineAction.RESUME, MachineAction.SUSPEND]
        await asyncio.gather(
            *(driver.act(action, [MachineHandle(handle.key, handle.native_id, f"t-{action}")]) for action in hasty)
        )
        seen = await wait_for_state(driver, case, handle.key, MachineState.RUNNING, MachineState.SUSPENDED)
        assert seen.native_id == handle.native_id
        (outcome,) = await driver.act(MachineAction.TERMINATE, [handle])
        assert is_done(outcome) or refused(outcome, RefusalReason.CONFLICT), outcome
