"""The tables and diagrams of the design that the mci domain follows, row by row, written down here a second time."""

import pytest

from stateward.domains.mci.api.live_status import SETTLED_STATES
from stateward.domains.mci.deployment_records import limit_of
from stateward.domains.mci.handlers.mci_handlers import BAD_STATES
from stateward.domains.mci.lifecycle import HOLD, MCI, VM, MciState, VmState
from stateward.lifecycle import (
    CONTROLLER,
    FINAL,
    FORCE,
    STABLE,
    TRANSITIONAL,
    USER,
    Lifecycle,
    Meaning,
    Move,
    State,
    StateClass,
    decide,
)

# --- statuses --------------------------------------------------------------------------------------------------------

OF_VMS = {
    # status         class
    "Creating":      TRANSITIONAL,
    "Running":       STABLE,
    "Suspending":    TRANSITIONAL,
    "Suspended":     STABLE,
    "Resuming":      TRANSITIONAL,
    "Rebooting":     TRANSITIONAL,
    "Terminating":   TRANSITIONAL,
    "Terminated":    FINAL,
    "Failed":        STABLE,  # called final, and yet has a way out there: terminate with force
    "Undefined":     STABLE,
}  # fmt: skip
OF_MCIS = OF_VMS | {"Preparing": TRANSITIONAL, "Prepared": TRANSITIONAL, "Partial": STABLE, "Empty": STABLE}


@pytest.mark.parametrize(("states", "expected"), [(VmState, OF_VMS), (MciState, OF_MCIS)], ids=["VM", "MCI"])
def test_the_statuses_are_those_of_the_design(states: type[State], expected: dict[str, StateClass]) -> None:
    assert {one.word: one.state_class for one in states} == expected


# --- what each action leads to ---------------------------------------------------------------------------------------

ACTIONS = [
    # action       from         through        target status
    ("create",     None,        "Creating",    "Running"),
    ("suspend",    "Running",   "Suspending",  "Suspended"),
    ("resume",     "Suspended", "Resuming",    "Running"),
    ("reboot",     "Running",   "Rebooting",   "Running"),
    ("terminate",  "Running",   "Terminating", "Terminated"),
    ("terminate",  "Suspended", "Terminating", "Terminated"),
]  # fmt: skip


def begun(lifecycle: Lifecycle, action: str, state: str | None, *facts: str) -> Move:
    source = lifecycle.initial.word if state is None else state
    move = decide(lifecycle, source, action, USER, frozenset(facts))
    assert isinstance(move, Move), move
    return move


@pytest.mark.parametrize(("action", "source", "through", "desired"), ACTIONS)
@pytest.mark.parametrize("lifecycle", [VM, MCI], ids=["VM", "MCI"])
def test_an_action_leads_through_a_state_to_its_target_status(
    lifecycle: Lifecycle, action: str, source: str | None, through: str, desired: str
) -> None:
    move = begun(lifecycle, action, source)
    expected = "Preparing" if lifecycle is MCI and action == "create" else through
    assert (move.target, move.desired) == (expected, desired)


def test_refine_has_no_target_status_and_is_for_failed_and_undefined_vms() -> None:
    assert BAD_STATES == (VmState.FAILED, VmState.UNDEFINED)
    move = begun(MCI, "refine", "Partial")
    assert move.target == "Partial"


# --- the diagrams ----------------------------------------------------------------------------------------------------

VM_DIAGRAM = [
    # from           to             by what
    ("Creating",     "Running",     Meaning.SUCCESS),
    ("Creating",     "Failed",      Meaning.FAILURE),
    ("Suspending",   "Suspended",   Meaning.SUCCESS),
    ("Suspending",   "Failed",      Meaning.FAILURE),
    ("Resuming",     "Running",     Meaning.SUCCESS),
    ("Resuming",     "Failed",      Meaning.FAILURE),
    ("Rebooting",    "Running",     Meaning.SUCCESS),
    ("Rebooting",    "Failed",      Meaning.FAILURE),
    ("Terminating",  "Terminated",  Meaning.SUCCESS),
    ("Terminating",  "Failed",      Meaning.FAILURE),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target", "meaning"), VM_DIAGRAM)
def test_a_vm_ends_its_work_as_drawn(source: str, target: str, meaning: Meaning) -> None:
    ends = {move.target.word for move in VM.exits(source) if move.meaning is meaning}
    assert target in ends


MCI_DIAGRAM = [
    # from           to              event             by
    ("Preparing",    "Prepared",     "prepared",       CONTROLLER),
    ("Preparing",    "Failed",       "failed",         CONTROLLER),
    ("Prepared",     "Creating",     "provision",      CONTROLLER),
    ("Prepared",     "Failed",       "failed",         CONTROLLER),
    ("Creating",     "Running",      "all running",    CONTROLLER),
    ("Creating",     "Partial",      "mixed",          CONTROLLER),
    ("Creating",     "Failed",       "all failed",     CONTROLLER),
    ("Running",      "Suspending",   "suspend",        USER),
    ("Running",      "Rebooting",    "reboot",         USER),
    ("Running",      "Terminating",  "terminate",      USER),
    ("Suspending",   "Suspended",    "all suspended",  CONTROLLER),
    ("Suspending",   "Partial",      "mixed",          CONTROLLER),
    ("Suspended",    "Resuming",     "resume",         USER),
    ("Suspended",    "Terminating",  "terminate",      USER),
    ("Resuming",     "Running",      "all running",    CONTROLLER),
    ("Resuming",     "Partial",      "mixed",          CONTROLLER),
    ("Rebooting",    "Running",      "all running",    CONTROLLER),
    ("Terminating",  "Terminated",   "all terminated", CONTROLLER),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target", "event", "actor"), MCI_DIAGRAM)
def test_an_mci_goes_as_drawn(source: str, target: str, event: str, actor: str) -> None:
    move = decide(MCI, source, event, actor)
    assert isinstance(move, Move), move
    assert move.target == target


@pytest.mark.parametrize("lifecycle", [VM, MCI], ids=["VM", "MCI"])
def test_what_has_failed_is_terminated_with_force_only(lifecycle: Lifecycle) -> None:
    assert not isinstance(decide(lifecycle, "Failed", "terminate", USER), Move)
    assert begun(lifecycle, "terminate", "Failed", FORCE).target == "Terminating"


@pytest.mark.parametrize("action", ["continue", "withdraw"])
def test_only_what_is_held_is_continued_or_withdrawn(action: str) -> None:
    assert not isinstance(decide(MCI, "Prepared", action, USER), Move)
    assert isinstance(decide(MCI, "Prepared", action, USER, frozenset({HOLD})), Move)


@pytest.mark.parametrize("lifecycle", [VM, MCI], ids=["VM", "MCI"])
def test_what_is_terminated_does_nothing_more(lifecycle: Lifecycle) -> None:
    for action in ("suspend", "resume", "reboot", "terminate"):
        for facts in (frozenset[str](), frozenset({FORCE})):
            assert not isinstance(decide(lifecycle, "Terminated", action, USER, facts), Move)


# --- mechanisms ------------------------------------------------------------------------------------------------------

LIMITS = [
    # provider      regions at once  VMs at once in each
    ("aws",         10,              30),
    ("azure",       8,               25),
    ("gcp",         12,              35),
    ("ncp",         3,               15),
    ("alibaba",     6,               20),
    ("openstack",   5,               15),
    ("any other",   10,              30),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "regions", "vms"), LIMITS)
def test_a_provider_has_its_limits(provider: str, regions: int, vms: int) -> None:
    assert (limit_of(provider).regions, limit_of(provider).vms) == (regions, vms)


@pytest.mark.parametrize(
    ("status", "asked"),
    [("Terminated", False), ("Failed", False), ("Suspended", False), ("Running", True), ("Creating", True)],
)
def test_providers_are_asked_about_what_may_change_by_itself(status: str, asked: bool) -> None:
    assert (status not in SETTLED_STATES) is asked
