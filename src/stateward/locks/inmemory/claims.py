"""Who holds or wants what, and the errors that say so."""

from collections.abc import Sequence

from msgspec import Struct

from stateward.errors import BadInput, StatewardError
from stateward.locks.modes import Mode

# The records hold only texts and numbers and so are no part of any cycle: gc=False spares the collector the look.

MAX_BLOCKERS_IN_TEXT = 5  # how many blockers a message spells out; the fields hold all of them


class Acquisition(Struct, frozen=True, gc=False):
    """One lock that one owner took: its path (in its one spelling), its mode, and the number of the taking.

    The number tells a lock from the same lock taken again later, so that an old record cannot give back a new lock.
    """

    owner: str
    path: str
    mode: Mode
    number: int


class LockBlocker(Struct, frozen=True, gc=False):
    """Somebody in the way: holding a lock, or waiting for one and ahead in the queue."""

    owner: str
    path: str
    mode: Mode
    waiting: bool = False

    def __str__(self) -> str:
        return f"{self.owner} ({'waiting for ' if self.waiting else ''}{self.mode} on {self.path})"


class LockConflict(StatewardError):
    """A lock that cannot be had now; names everybody who is in the way."""

    retry = True

    def __init__(self, owner: str, path: str, mode: Mode, blockers: Sequence[LockBlocker]) -> None:
        super().__init__(owner, path, mode, blockers)
        self.owner = owner
        self.path = path
        self.mode = mode
        self.blockers = tuple(blockers)

    def __str__(self) -> str:
        return f"{self.owner} cannot have {self.mode} on {self.path}: in the way {_listed(self.blockers)}"


class Deadlock(LockConflict):
    """A wait that would never end: each owner of the cycle waits for the next one, and the last for the first."""

    def __init__(
        self, owner: str, path: str, mode: Mode, blockers: Sequence[LockBlocker], cycle: Sequence[LockBlocker]
    ) -> None:
        super().__init__(owner, path, mode, blockers)
        self.args = (owner, path, mode, blockers, cycle)
        self.cycle = tuple(cycle)

    def __str__(self) -> str:
        chain = " -> ".join([*map(str, self.cycle), self.owner])
        return f"{self.owner} cannot wait for {self.mode} on {self.path}: deadlock {chain}"


def as_blocker(acquisition: Acquisition, *, waiting: bool = False) -> LockBlocker:
    """Show a record as somebody in the way."""
    return LockBlocker(acquisition.owner, acquisition.path, acquisition.mode, waiting)


def check_name(field: str, name: object) -> None:
    """Raise unless the name is a text with something in it."""
    if not isinstance(name, str) or not name:
        raise BadInput(field, name, "a name")


def _listed(blockers: Sequence[LockBlocker]) -> str:
    verb = "is " if len(blockers) == 1 else "are "
    more = f" and {len(blockers) - MAX_BLOCKERS_IN_TEXT:,} more" if len(blockers) > MAX_BLOCKERS_IN_TEXT else ""
    return verb + ", ".join(map(str, blockers[:MAX_BLOCKERS_IN_TEXT])) + more
