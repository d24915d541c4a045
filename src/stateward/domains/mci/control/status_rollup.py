"""Roll-up of VM states into the status of an MCI: the status string, the counts, and the state. Pure functions.

The string is `(Partial-){Status}:{count} (R:{running}/{total})` for the most frequent status. An MCI without VMs has
nothing to count: its string is the progress of its creation (Preparing, Prepared, Creating, Failed), else Empty.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from stateward.domains.mci.lifecycle import MciState, VmState
from stateward.errors import UnknownName
from stateward.lifecycle.rollup import Dominant, dominant

DOMINANCE_ORDER = (
    VmState.FAILED,
    VmState.SUSPENDED,
    VmState.RUNNING,
    VmState.TERMINATED,
    VmState.CREATING,
    VmState.SUSPENDING,
    VmState.RESUMING,
    VmState.REBOOTING,
    VmState.TERMINATING,
    VmState.UNDEFINED,
)
"""Order of dominance among statuses with equal counts."""

STATES_WITHOUT_VMS = frozenset({MciState.PREPARING, MciState.PREPARED, MciState.CREATING, MciState.FAILED})
"""The states that an MCI without VMs may show; any other is shown as Empty."""


EVENT_OF_STATE = {
    MciState.RUNNING: "all running",
    MciState.SUSPENDED: "all suspended",
    MciState.TERMINATED: "all terminated",
    MciState.FAILED: "all failed",
    MciState.UNDEFINED: "none can say",
    MciState.EMPTY: "none left",
}
"""The event for VMs that are all in one state; the event for different states is `mixed`."""

STATE_OF_EVENT = {event: state for state, event in EVENT_OF_STATE.items()} | {"mixed": MciState.PARTIAL}
"""The state of an MCI after each roll-up event."""


class StatusCount(Struct, frozen=True, rename="camel"):
    """The number of VMs of an MCI, in total and by state."""

    count_total: int = 0
    count_creating: int = 0
    count_running: int = 0
    count_failed: int = 0
    count_suspended: int = 0
    count_rebooting: int = 0
    count_terminated: int = 0
    count_suspending: int = 0
    count_resuming: int = 0
    count_terminating: int = 0
    count_undefined: int = 0

    def of(self, state: VmState) -> int:
        """Return how many VMs are in a state."""
        number: int = getattr(self, f"count_{state.lower()}")
        return number


class MciStatus(Struct, frozen=True):
    """The status of an MCI as Tumblebug clients read it."""

    status: str
    status_count: StatusCount


def count_vms(states: Iterable[str]) -> StatusCount:
    """Count the VMs of an MCI by state; an unknown state is an error."""
    counts = Counter(states)
    for word in counts:
        if word not in DOMINANCE_ORDER:
            raise UnknownName("state of a VM", word, DOMINANCE_ORDER)
    return StatusCount(counts.total(), **{f"count_{state.lower()}": counts[state] for state in DOMINANCE_ORDER})


def roll_up_status(mci: MciState, states: Iterable[str]) -> MciStatus:
    """Return the status of an MCI: the string and the counts."""
    counts = count_vms(states)
    return MciStatus(status_text(mci, counts), counts)


def status_text(mci: MciState, counts: StatusCount) -> str:
    """Return the status string of an MCI, such as `Partial-Running:3 (R:3/5)`."""
    most = _dominant(counts)
    if most is None:
        return str(mci if mci in STATES_WITHOUT_VMS else MciState.EMPTY)
    prefix = "Partial-" if most.partial else ""
    return f"{prefix}{most.status}:{most.count} (R:{counts.count_running}/{most.total})"


def rollup_state(counts: StatusCount) -> MciState:
    """Return the state of an MCI that follows from its VMs alone."""
    most = _dominant(counts)
    if most is None:
        return MciState.EMPTY
    return MciState.PARTIAL if most.partial else MciState[most.status.name]


def rollup_event(states: Sequence[str]) -> str:
    """Return the event that moves an MCI to the state of its VMs."""
    return EVENT_OF_STATE.get(rollup_state(count_vms(states)), "mixed")


def _dominant(counts: StatusCount) -> Dominant[VmState] | None:
    return dominant({state: counts.of(state) for state in DOMINANCE_ORDER}, DOMINANCE_ORDER)
