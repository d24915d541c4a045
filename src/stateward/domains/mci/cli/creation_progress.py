"""Progress of an operation on an MCI: a bar for each provider and region, as its VMs reach a stable state.

The journal names the VMs that took part since the operation was accepted. So creation, control and scaling look
alike, and 10,000 VMs cost one page of the journal now and then.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from stateward.client.arguments import ObjectSelector
from stateward.client.operation_waiter import OperationWaiter, TookTooLong
from stateward.client.output import err
from stateward.client.progress import ProgressBars, group_of
from stateward.schemas.journal import LineView
from stateward.schemas.operations import OperationView

if TYPE_CHECKING:
    from stateward.client.session import Session

VM = "mci.vm"
BAD = frozenset({"Failed", "Undefined"})
PREPARING = "Preparing"
PAUSE = 0.25


class Level(Struct, frozen=True):
    """How many VMs of a group have come to rest, of how many, and how many badly."""

    done: int
    total: int
    bad: int


class Course:
    """The VMs that take part, as far as the journal has told."""

    def __init__(self, resting: Callable[[str], bool]) -> None:
        self._resting = resting
        self._states: dict[str, str] = {}
        self._groups: dict[str, str] = {}

    def note(self, lines: Iterable[LineView], mci: str) -> None:
        """Take note of what the journal tells of an MCI's VMs."""
        for line in lines:
            if line.object.startswith(f"{mci}.") and line.target is not None:
                self._states[line.object] = line.target

    def place(self, groups: Mapping[str, str]) -> None:
        """Take note of the groups that VMs belong to; one that is in none is gone already."""
        self._groups.update(dict.fromkeys(self._states, VM) | self._groups | dict(groups))

    @property
    def lost(self) -> bool:
        """Whether there are VMs whose group is not known yet."""
        return not self._states.keys() <= self._groups.keys()

    def levels(self) -> dict[str, Level]:
        """Return how far each group has come."""
        totals, done, bad = Counter[str](), Counter[str](), Counter[str]()
        for id_, state in self._states.items():
            group = self._groups.get(id_, VM)
            totals[group] += 1
            done[group] += self._resting(state)
            bad[group] += state in BAD
        return {group: Level(done[group], totals[group], bad[group]) for group in totals}


def is_watched(session: "Session") -> bool:
    """Tell whether somebody looks at bars."""
    return not session.json and err().is_terminal


def groups_of(session: "Session", mci: str) -> dict[str, str]:
    """Return the providers and regions of an MCI's VMs."""
    found = session.client.objects(session.ns, ObjectSelector(kind=VM, parent=mci))
    return {one.id: group_of(one.kind, one.labels) for one in found}


def seen_to_end(
    session: "Session", mci: str, operation: OperationView, timeout: float | None, groups: Mapping[str, str]
) -> OperationView:
    """Wait for the end of an operation, with bars on a terminal; returns it as it is then."""
    if not is_watched(session):
        (ended,) = OperationWaiter(session.client, session.ns, [operation], timeout=timeout, pause=session.pause)
        return ended
    course = Course(lambda state: session.state_class(VM, state) != "transitional")
    course.place(groups)
    with ProgressBars(err(), Counter()) as bars:
        return _watched(session, mci, operation, timeout, course, bars)


def _watched(
    session: "Session", mci: str, operation: OperationView, timeout: float | None, course: Course, bars: ProgressBars
) -> OperationView:
    until = None if timeout is None else time.monotonic() + timeout
    since = operation.created.isoformat()
    after = 0
    while True:
        now = session.client.operation(session.ns, operation.id)
        after = _hear(session, mci, course, after, since)
        for group, level in course.levels().items():
            bars.level(group, level.done, level.total, level.bad)
        if now.has_ended:
            return now
        if until is not None and timeout is not None and time.monotonic() >= until:
            raise TookTooLong([operation.id], timeout)
        session.pause(PAUSE)


def _hear(session: "Session", mci: str, course: Course, after: int, since: str | None) -> int:
    """Read the journal to its end; returns the number of its last line."""
    more = True
    while more:
        page = session.client.journal(after, ns=session.ns, kind=VM, since=since)
        course.note(page.lines, mci)
        after, more = page.after, page.more
    if course.lost:
        course.place(groups_of(session, mci))
    return after


def until_held(session: "Session", mci: str, timeout: float | None) -> None:
    """Wait until an MCI is prepared, or has failed to be: one that is held goes on only when it is told to."""
    until = None if timeout is None else time.monotonic() + timeout
    while (found := session.client.object(session.ns, mci)).state == PREPARING:
        if until is not None and timeout is not None and time.monotonic() >= until:
            raise TookTooLong([found.op or mci], timeout)
        session.pause(PAUSE)
