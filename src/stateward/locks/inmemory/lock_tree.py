"""A tree of locks: a lock on a path is an intention on each ancestor, the root included, and the mode on its node.

A claim is checked along its whole path before it is recorded, under one guard. So a refused claim changes nothing, and
no other claim comes between the check and the record.
"""

from collections.abc import Iterator
from threading import Lock

from stateward.locks.inmemory.claim_ledger import ClaimLedger
from stateward.locks.inmemory.claims import Acquisition, LockBlocker, LockConflict, as_blocker, check_name
from stateward.locks.modes import Mode, as_mode
from stateward.locks.paths import Path, parse_path


class LockTree:
    """The locks on one tree of paths; conflicts are refused at once. Thread-safe.

    An owner never conflicts with itself, may hold several paths, and holds a lock once, even if it takes it twice.
    """

    __slots__ = ("_guard", "_ledger")

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        self._ledger = ClaimLedger(numbers)
        self._guard = Lock()

    def acquire(self, owner: str, path: str | Path, mode: Mode) -> Acquisition:
        """Take a lock, or raise a `LockConflict` that names all blockers."""
        check_name("owner", owner)
        place, mode = parse_path(path), as_mode(mode)
        with self._guard:
            held = self._ledger.find(owner, place, mode)
            if held is not None:
                return held
            if self._ledger.is_free(owner, place, mode):
                return self._ledger.add(owner, place, mode)
            blockers = self._blockers(owner, place, mode)
        raise LockConflict(owner, str(place), mode, blockers)

    def release(self, acquisition: Acquisition) -> bool:
        """Release a lock and return whether it was held; a second call does nothing."""
        with self._guard:
            return self._ledger.remove(acquisition)

    def release_all(self, owner: str) -> tuple[Acquisition, ...]:
        """Release all locks of an owner, and return them."""
        with self._guard:
            held = self._ledger.owned(owner)
            for acquisition in held:
                self._ledger.remove(acquisition)
            return held

    def blockers(self, owner: str, path: str | Path, mode: Mode) -> tuple[LockBlocker, ...]:
        """Return the blockers of a lock request, without making it."""
        place, mode = parse_path(path), as_mode(mode)
        with self._guard:
            return self._blockers(owner, place, mode)

    def in_progress(self) -> tuple[Acquisition, ...]:
        """Return all held locks, oldest first."""
        with self._guard:
            return self._ledger.claims()

    def held_by(self, owner: str) -> tuple[Acquisition, ...]:
        """Return the locks of an owner, oldest first."""
        with self._guard:
            return self._ledger.owned(owner)

    def nodes(self) -> dict[str, dict[Mode, int]]:
        """Return all nodes with a lock or an intention, with their number in each mode."""
        with self._guard:
            return {str(path): counts for path, counts in self._ledger.nodes()}

    def __len__(self) -> int:
        return len(self._ledger)

    def _blockers(self, owner: str, place: Path, mode: Mode) -> tuple[LockBlocker, ...]:
        return tuple(as_blocker(claim) for claim in self._ledger.blockers_of(owner, place, mode))
