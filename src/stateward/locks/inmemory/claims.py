"""Records of held and awaited locks, and the errors of conflicts."""

from collections.abc import Sequence

from msgspec import Struct

from stateward.errors import BadInput, StatewardError
from stateward.locks.modes import Mode

# The records are never part of a reference cycle: gc=False takes them out of the collector's scans.

MAX_BLOCKERS_IN_TEXT = 5  # the most blockers that a message names; the fields hold all of them


class Acquisition(Struct, frozen=True, gc=False):
    """A lock of an owner: its normalized path, its mode, and its number.

    The number tells a lock from the same lock taken again later, so that an old record cannot release a new lock.
    """

    owner: str
    path: str
    mode: Mode
    number: int


class LockBlocker(Struct, frozen=True, gc=False):
    """The blocker of a lock request: it holds a lock, or waits for one ahead in the queue."""

    owner: str
    path: str
    mode: Mode
    waiting: bool = False

    def __str__(self) -> str:
        return f"{self.owner} ({'waiting for ' if self.waiting else ''}{self.mode} on {self.path})"


class LockConflict(StatewardError):
    """A lock request that conflicts with held or awaited locks; names all blockers."""

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
    """Return the blocker of a record."""
    return LockBlocker(acquisition.owner, acquisition.path, acquisition.mode, waiting)


def check_name(field: str, name: object) -> None:
    """Raise unless the name is a text that is not empty."""
    if not isinstance(name, str) or not name:
        raise BadInput(field, name, "a name")


def _listed(blockers: Sequence[LockBlocker]) -> str:
    verb = "is " if len(blockers) == 1 else "are "
    more = f" and {len(blockers) - MAX_BLOCKERS_IN_TEXT:,} more" if len(blockers) > MAX_BLOCKERS_IN_TEXT else ""
    return verb + ", ".join(map(str, blockers[:MAX_BLOCKERS_IN_TEXT])) + more
