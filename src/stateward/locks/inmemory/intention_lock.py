"""A single lock with the five modes. It never blocks: a request is granted at once, or refused."""

from __future__ import annotations

from threading import Lock
from types import TracebackType
from typing import Self

from stateward.locks.modes import Mode, as_mode, compatible, intention

BITS = 32
FIELD = (1 << BITS) - 1

# IX and X are the lowest fields, because deploys take nothing else and small integers add faster.
FIELD_ORDER = (Mode.IX, Mode.X, Mode.IS, Mode.S, Mode.SIX)

UNIT: dict[Mode, int] = {mode: 1 << BITS * place for place, mode in enumerate(FIELD_ORDER)}
"""The number that one lock in a mode adds to the counts."""


def _fields(modes: list[Mode]) -> int:
    return sum(FIELD * UNIT[mode] for mode in modes)


BLOCKING_FIELDS: dict[Mode, int] = {
    mode: _fields([other for other in Mode if not compatible(mode, other)]) for mode in Mode
}
"""The fields that must be 0 on a node for a lock in this mode."""

BLOCKING_FIELDS_BELOW: dict[Mode, int] = {
    mode: _fields([other for other in Mode if not compatible(mode, intention(other))]) for mode in Mode
}
"""The fields of a node for locks that prevent a lock of its ancestor in this mode."""


def unpack_counts(counts: int) -> dict[Mode, int]:
    """Return the number of locks in each mode, without modes that are not held."""
    folded = {mode: counts // UNIT[mode] & FIELD for mode in Mode}
    return {mode: times for mode, times in folded.items() if times}


class IntentionLock:
    """A lock that several may hold at once if their modes are compatible. Thread-safe."""

    __slots__ = ("_counts", "_guard")

    def __init__(self) -> None:
        self._counts = 0
        self._guard = Lock()

    def try_lock(self, mode: Mode) -> Unlocker | None:
        """Take the lock in a mode and return its unlocker, or None if it is held in a mode that conflicts."""
        mode = as_mode(mode)
        with self._guard:
            if self._counts & BLOCKING_FIELDS[mode]:
                return None
            self._counts += UNIT[mode]
        return Unlocker(self, mode)

    def held(self) -> dict[Mode, int]:
        """Return how often the lock is held in each mode, without modes in which it is not held."""
        return unpack_counts(self._counts)

    def __repr__(self) -> str:
        held = ", ".join(f"{times} {mode}" for mode, times in self.held().items())
        return f"<IntentionLock {held or 'free'}>"


class Unlocker:
    """Releases a lock in the mode in which it was taken; a second call does nothing."""

    __slots__ = ("_lock", "_mode", "_unlocked")

    def __init__(self, lock: IntentionLock, mode: Mode) -> None:
        self._lock = lock
        self._mode = mode
        self._unlocked = False

    @property
    def mode(self) -> Mode:
        """The mode in which the lock was taken."""
        return self._mode

    def unlock(self) -> None:
        """Release the lock."""
        with self._lock._guard:  # noqa: SLF001 - an unlocker is a part of its lock
            if not self._unlocked:
                self._unlocked = True
                self._lock._counts -= UNIT[self._mode]  # noqa: SLF001

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.unlock()
