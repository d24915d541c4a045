"""A tree of locks: a lock on a path is an intention on each ancestor, the root included, and the mode on its node.

A claim is checked as a whole before anything is taken, under one guard; so a refused claim has taken nothing, and
nothing else can come between the check and the taking.
"""

from collections.abc import Iterator
from threading import Lock

from stateward.locks.inmemory.claim_ledger import ClaimLedger
from stateward.locks.inmemory.claims import Acquisition, LockBlocker, LockConflict, as_blocker, check_name
from stateward.locks.modes import Mode, as_mode
from stateward.locks.paths import Path, parse_path


class LockTree:
    """The locks on one tree of paths; conflicts are refused at once. Thread-safe.

    An owner is never in their own way, may hold several paths, and holds the same lock once, however often it is taken.
    """

    __slots__ = ("_guard", "_ledger")

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        self._ledger = ClaimLedger(numbers)
        self._guard = Lock()

    def acquire(self, owner: str, path: str | Path, mode: Mode) -> Acquisition:
        """Take a lock, or raise a `Conflict` that names every blocker."""
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
        """Give one lock back and say whether it was held; a second time does nothing."""
        with self._guard:
            return self._ledger.remove(acquisition)

    def release_all(self, owner: str) -> tuple[Acquisition, ...]:
        """Give back everything that an owner holds, and return it."""
        with self._guard:
            held = self._ledger.owned(owner)
            for acquisition in held:
                self._ledger.remove(acquisition)
            return held

    def blockers(self, owner: str, path: str | Path, mode: Mode) -> tuple[LockBlocker, ...]:
        """Return who would be in the way of a lock, without taking it."""
        place, mode = parse_path(path), as_mode(mode)
        with self._guard:
            return self._blockers(owner, place, mode)

    def in_progress(self) -> tuple[Acquisition, ...]:
        """Return all locks that are held, oldest first."""
        with self._guard:
            return self._ledger.claims()

    def held_by(self, owner: str) -> tuple[Acquisition, ...]:
        """Return what an owner holds, oldest first."""
        with self._guard:
            return self._ledger.owned(owner)

    def nodes(self) -> dict[str, dict[Mode, int]]:
        """Return every node that is locked or has an intention on it, with how often in each mode."""
        with self._guard:
            return {str(path): counts for path, counts in self._ledger.nodes()}

    def __len__(self) -> int:
        return len(self._ledger)

    def _blockers(self, owner: str, place: Path, mode: Mode) -> tuple[LockBlocker, ...]:
        return tuple(as_blocker(claim) for claim in self._ledger.blockers_of(owner, place, mode))
