"""A single lock with the five modes, which never blocks: either it is had at once, or not at all."""

from __future__ import annotations

from threading import Lock
from types import TracebackType
from typing import Self

from stateward.locks.modes import Mode, as_mode, compatible, intention

BITS = 32
FIELD = (1 << BITS) - 1

# Intention-exclusive and exclusive are the lowest, because deploys take nothing else and small numbers add faster.
FIELD_ORDER = (Mode.IX, Mode.X, Mode.IS, Mode.S, Mode.SIX)

UNIT: dict[Mode, int] = {mode: 1 << BITS * place for place, mode in enumerate(FIELD_ORDER)}
"""What one lock in a mode adds."""


def _fields(modes: list[Mode]) -> int:
    return sum(FIELD * UNIT[mode] for mode in modes)


BLOCKING_FIELDS: dict[Mode, int] = {
    mode: _fields([other for other in Mode if not compatible(mode, other)]) for mode in Mode
}
"""The fields that must be 0 on a node for a lock in this mode."""

BLOCKING_FIELDS_BELOW: dict[Mode, int] = {
    mode: _fields([other for other in Mode if not compatible(mode, intention(other))]) for mode in Mode
}
"""The fields that stand, on a node, for locks that stop an ancestor of it from being locked in this mode."""


def unpack_counts(counts: int) -> dict[Mode, int]:
    """Unfold the number into how often each mode is held, leaving out those that are not."""
    folded = {mode: counts // UNIT[mode] & FIELD for mode in Mode}
    return {mode: times for mode, times in folded.items() if times}


class IntentionLock:
    """A lock that several may hold at once, as far as their modes go together. Thread-safe."""

    __slots__ = ("_counts", "_guard")

    def __init__(self) -> None:
        self._counts = 0
        self._guard = Lock()

    def try_lock(self, mode: Mode) -> Unlocker | None:
        """Take the lock in a mode and return what gives it back, or None if it is held in a mode that forbids it."""
        mode = as_mode(mode)
        with self._guard:
            if self._counts & BLOCKING_FIELDS[mode]:
                return None
            self._counts += UNIT[mode]
        return Unlocker(self, mode)

    def held(self) -> dict[Mode, int]:
        """Return how often the lock is held in each mode, leaving out those in which it is not."""
        return unpack_counts(self._counts)

    def __repr__(self) -> str:
        held = ", ".join(f"{times} {mode}" for mode, times in self.held().items())
        return f"<IntentionLock {held or 'free'}>"


class Unlocker:
    """Gives one lock back, in the mode it was taken in; a second time does nothing."""

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
        """Give the lock back."""
        with self._lock._guard:  # noqa: SLF001 - lock and unlocker are one thing in two halves
            if not self._unlocked:
                self._unlocked = True
                self._lock._counts -= UNIT[self._mode]  # noqa: SLF001

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.unlock()
