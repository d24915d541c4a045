"""The locks of the Lattice design in the memory of one process: a single lock, and the locks of actions on systems.

Neither blocks: a request is granted immediately, or refused. A deploy changes its path and all below: X on the path, IX
on each ancestor. A teardown or a delete changes the whole system: X on the root. So deploys of disjoint paths run at
the same time, a deploy excludes others above, at and below its path, and a teardown excludes all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from threading import Lock
from types import TracebackType
from typing import Self

from msgspec import Struct

from stateward.errors import BadInput, StatewardError
from stateward.locks import ROOT, Mode, Path, as_mode, compatible, conflict_between, parse_path

MAX_BLOCKERS_IN_TEXT = 5  # the most blockers that a message names; the field holds all of them


class IntentionLock:
    """A lock that several may hold at once if their modes are compatible. Thread-safe."""

    def __init__(self) -> None:
        self._held: Counter[Mode] = Counter()
        self._guard = Lock()

    def try_lock(self, mode: Mode) -> Unlocker | None:
        """Take the lock in a mode and return its unlocker, or None if it is held in a mode that conflicts."""
        mode = as_mode(mode)
        with self._guard:
            if not all(compatible(mode, other) for other in self._held):
                return None
            self._held[mode] += 1
        return Unlocker(self, mode)

    def held(self) -> dict[Mode, int]:
        """Return how often the lock is held in each mode, without modes in which it is not held."""
        with self._guard:
            return dict(self._held)

    def _give_back(self, mode: Mode) -> None:
        with self._guard:
            self._held = self._held - Counter([mode])  # without modes whose count is 0

    def __repr__(self) -> str:
        held = ", ".join(f"{times} {mode}" for mode, times in self.held().items())
        return f"<IntentionLock {held or 'free'}>"


class Unlocker:
    """Releases a lock in the mode in which it was taken; a second call does nothing."""

    def __init__(self, lock: IntentionLock, mode: Mode) -> None:
        self._locks = [lock]
        self.mode = mode

    def unlock(self) -> None:
        """Release the lock."""
        try:
            lock = self._locks.pop()  # one step: of two threads, one finds nothing
        except IndexError:
            return
        lock._give_back(self.mode)  # noqa: SLF001 - an unlocker is a part of its lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.unlock()


class ActionLock(Struct, frozen=True):
    """What an action has locked.

    The number tells a lock from the same lock taken again later, so that an old record cannot release a new lock.
    """

    system: str
    owner: str
    path: str
    number: int
    mode: Mode = Mode.X

    def __str__(self) -> str:
        return f"{self.owner} ({self.mode} on {self.path})"


class LockConflict(StatewardError):
    """A lock request that conflicts with held locks; names all of them."""

    retry = True

    def __init__(self, owner: str, path: str, blockers: Sequence[ActionLock]) -> None:
        super().__init__(owner, path, blockers)
        self.owner = owner
        self.path = path
        self.blockers = tuple(blockers)

    def __str__(self) -> str:
        more = len(self.blockers) - MAX_BLOCKERS_IN_TEXT
        named = ", ".join(map(str, self.blockers[:MAX_BLOCKERS_IN_TEXT])) + (f" and {more:,} more" if more > 0 else "")
        return f"{self.owner} cannot lock {self.path}, because of {named}"


class LifecycleActionManager:
    """The locks of all systems' actions. Thread-safe.

    An owner is one action. It holds a path once, even if it locks it several times, so the first unlocker releases it.
    """

    def __init__(self) -> None:
        self._held: list[ActionLock] = []
        self._numbers = count(1)
        self._guard = Lock()

    def deploy(self, system: str, owner: str, path: str | Path) -> ActionUnlocker:
        """Lock a path for a deploy, or raise a `LockConflict` that names all blockers."""
        return self._lock(system, owner, parse_path(path))

    def teardown(self, system: str, owner: str) -> ActionUnlocker:
        """Lock the whole system for a teardown, or raise a `LockConflict` that names all blockers."""
        return self._lock(system, owner, ROOT)

    def delete(self, system: str, owner: str) -> ActionUnlocker:
        """Lock the whole system to delete it, or raise a `LockConflict` that names all blockers."""
        return self._lock(system, owner, ROOT)

    def release(self, system: str, owner: str) -> tuple[ActionLock, ...]:
        """Release all locks of an action in a system, and return them."""
        with self._guard:
            released = [held for held in self._held if (held.system, held.owner) == (system, owner)]
            self._held = [held for held in self._held if held not in released]
        return tuple(released)

    def in_progress(self, system: str) -> tuple[ActionLock, ...]:
        """Return all locks that are held in a system, oldest first."""
        with self._guard:
            return tuple(held for held in self._held if held.system == system)

    def systems(self) -> tuple[str, ...]:
        """Return the names of the systems in which something is held."""
        with self._guard:
            return tuple(dict.fromkeys(held.system for held in self._held))

    def _lock(self, system: str, owner: str, path: Path) -> ActionUnlocker:
        for field, name in (("system", system), ("owner", owner)):
            if not name:
                raise BadInput(field, name, "a name")
        with self._guard:
            others = [held for held in self._held if held.system == system]
            same = [held for held in others if (held.owner, held.path) == (owner, str(path))]
            if same:
                return ActionUnlocker(self, same[0])
            blockers = [
                held
                for held in others
                if held.owner != owner and conflict_between(path, Mode.X, parse_path(held.path), held.mode)
            ]
            if blockers:
                raise LockConflict(owner, str(path), blockers)
            lock = ActionLock(system, owner, str(path), next(self._numbers))
            self._held.append(lock)
        return ActionUnlocker(self, lock)

    def _give_back(self, lock: ActionLock) -> None:
        with self._guard:
            if lock in self._held:
                self._held.remove(lock)


class ActionUnlocker:
    """Releases one lock of an action; does nothing if it was released before."""

    def __init__(self, actions: LifecycleActionManager, lock: ActionLock) -> None:
        self._actions = actions
        self.lock = lock

    def unlock(self) -> None:
        """Release the lock."""
        self._actions._give_back(self.lock)  # noqa: SLF001 - an unlocker is a part of its manager

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.unlock()
