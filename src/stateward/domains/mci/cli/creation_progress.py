"""Progress of an operation on an MCI: a bar for each provider and region, as its VMs reach a stable state.

The journal names the VMs that took part since the operation was accepted. So creation, control and scaling are shown
in the same way, and 10,000 VMs cost one page of the journal per poll.
"""

# bounded by: one command
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from stateward.client.arguments import ObjectSelector
from stateward.client.operation_waiter import OperationWaiter, TookTooLong, naming_open_operations
from stateward.client.output import err
from stateward.client.progress import ProgressBars, group_of
from stateward.schemas.journal import LineView
from stateward.schemas.operations import OperationView

if TYPE_CHECKING:
    from stateward.client.session import Session

VM = "mci.vm"
BAD = frozenset({"Failed", "Undefined"})
PREPARING = "Preparing"
PAUSE_S = 0.25


class GroupProgress(Struct, frozen=True):
    """The number of VMs of a group that have reached a stable state, of all, and of those in a bad state."""

    done: int
    total: int
    bad: int


class VmProgress:
    """The latest states of the VMs that take part, from the journal."""

    def __init__(self, is_at_rest: Callable[[str], bool]) -> None:
        self._is_at_rest = is_at_rest
        self._states: dict[str, str] = {}
        self._groups: dict[str, str] = {}

    def add_entries(self, entries: Iterable[LineView], mci: str) -> None:
        """Take the states of an MCI's VMs from journal entries."""
        for entry in entries:
            if entry.object.startswith(f"{mci}.") and entry.target is not None:
                self._states[entry.object] = entry.target

    def set_groups(self, groups: Mapping[str, str]) -> None:
        """Set the groups of VMs; a VM without a group does not exist any more."""
        self._groups.update(dict.fromkeys(self._states, VM) | self._groups | dict(groups))

    @property
    def has_unknown_groups(self) -> bool:
        """Whether there are VMs whose group is not known yet."""
        return not self._states.keys() <= self._groups.keys()

    def levels(self) -> dict[str, GroupProgress]:
        """Return the progress of each group."""
        totals, done, bad = Counter[str](), Counter[str](), Counter[str]()
        for id_, state in self._states.items():
            group = self._groups.get(id_, VM)
            totals[group] += 1
            done[group] += self._is_at_rest(state)
            bad[group] += state in BAD
        return {group: GroupProgress(done[group], totals[group], bad[group]) for group in totals}


def is_watched(session: "Session") -> bool:
    """Tell whether the command shows bars: on a terminal, without `--json`."""
    return not session.json and err().is_terminal


def groups_of(session: "Session", mci: str) -> dict[str, str]:
    """Return the providers and regions of an MCI's VMs."""
    vms = session.client.objects(session.ns, ObjectSelector(kind=VM, parent=mci))
    return {vm.id: group_of(vm.kind, vm.labels) for vm in vms}


def wait_with_progress(
    session: "Session", mci: str, operation: OperationView, groups: Mapping[str, str]
) -> OperationView:
    """Wait for the end of an operation, with bars on a terminal; returns it as it has ended."""
    with naming_open_operations(session.ns, {operation.id: f"{operation.action} {operation.object}"}):
        return _wait(session, mci, operation, groups)


def _wait(session: "Session", mci: str, operation: OperationView, groups: Mapping[str, str]) -> OperationView:
    if not is_watched(session):
        waiter = OperationWaiter(session.client, session.ns, [operation], timeout=session.timeout, pause=session.pause)
        (ended,) = waiter
        return ended
    vms = VmProgress(lambda state: session.state_class(VM, state) != "transitional")
    vms.set_groups(groups)
    check_timeout, last_entry = _timeout_check(session), 0
    with ProgressBars(err(), Counter()) as bars:
        while True:
            now = session.client.operation(session.ns, operation.id)
            last_entry = _read_journal(session, mci, vms, last_entry, operation.created.isoformat())
            for group, level in vms.levels().items():
                bars.set_level(group, level.done, level.total, level.bad)
            if now.has_ended:
                return now
            check_timeout(operation.id)
            session.pause(PAUSE_S)


def _read_journal(session: "Session", mci: str, vms: VmProgress, after: int, since: str) -> int:
    """Read the journal to its end; returns the number of its last entry."""
    more = True
    while more:
        page = session.client.journal(after, ns=session.ns, kind=VM, since=since)
        vms.add_entries(page.lines, mci)
        after, more = page.after, page.more
    if vms.has_unknown_groups:
        vms.set_groups(groups_of(session, mci))
    return after


def wait_until_held(session: "Session", mci: str, operation: str | None) -> None:
    """Wait until an MCI is prepared, or its preparation has failed; a held MCI goes on only on request."""
    check_timeout = _timeout_check(session)
    with naming_open_operations(session.ns, {operation: f"create {mci}"} if operation else {}):
        while (record := session.client.object(session.ns, mci)).state == PREPARING:
            check_timeout(record.op or mci)
            session.pause(PAUSE_S)


def _timeout_check(session: "Session") -> Callable[[str], None]:
    """Return a function that raises, naming an operation, once the session's timeout is over."""
    timeout = session.timeout
    until = None if timeout is None else time.monotonic() + timeout

    def check(waiting_for: str) -> None:
        if timeout is not None and until is not None and time.monotonic() >= until:
            raise TookTooLong([waiting_for], timeout)

    return check
