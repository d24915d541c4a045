"""The locks of lifecycle actions on systems; each system has its own tree of locks.

A deploy changes its path and all below: X on the path, IX on each ancestor. A teardown or a delete changes the whole
system: X on the root. So deploys of disjoint paths run at the same time, a deploy excludes others above, at and below
its path, and a teardown excludes all others.
"""

from __future__ import annotations

from itertools import count
from threading import Lock
from types import TracebackType
from typing import Self

from stateward.locks.inmemory.claims import Acquisition, check_name
from stateward.locks.inmemory.lock_tree import LockTree
from stateward.locks.modes import Mode
from stateward.locks.paths import ROOT, Path


class LifecycleActionManager:
    """The locks of all systems' actions; a system without locks is removed. Thread-safe.

    An owner is one action. It holds a path once, even if it locks it several times, so the first unlocker releases it.
    """

    __slots__ = ("_guard", "_numbers", "_trees")

    def __init__(self) -> None:
        self._trees: dict[str, LockTree] = {}
        self._numbers = count(1)  # one for all trees, so that an old record never matches a lock of a new tree
        self._guard = Lock()

    def deploy(self, system: str, owner: str, path: str | Path) -> ActionUnlocker:
        """Lock a path for a deploy, or raise a `LockConflict` that names all blockers."""
        return self._lock(system, owner, path)

    def teardown(self, system: str, owner: str) -> ActionUnlocker:
        """Lock the whole system for a teardown, or raise a `LockConflict` that names all blockers."""
        return self._lock(system, owner, ROOT)

    def delete(self, system: str, owner: str) -> ActionUnlocker:
        """Lock the whole system to delete it, or raise a `LockConflict` that names all blockers."""
        return self._lock(system, owner, ROOT)

    def release(self, system: str, owner: str) -> tuple[Acquisition, ...]:
        """Release all locks of an action in a system, and return them."""
        with self._guard:
            tree = self._trees.get(system)
            if tree is None:
                return ()
            given_back = tree.release_all(owner)
            self._forget_if_empty(system, tree)
            return given_back

    def in_progress(self, system: str) -> tuple[Acquisition, ...]:
        """Return all locks that are held in a system, oldest first."""
        with self._guard:
            tree = self._trees.get(system)
            return tree.in_progress() if tree is not None else ()

    def systems(self) -> tuple[str, ...]:
        """Return the names of the systems in which something is held."""
        with self._guard:
            return tuple(self._trees)

    def _lock(self, system: str, owner: str, path: str | Path) -> ActionUnlocker:
        check_name("system", system)
        with self._guard:
            tree = self._trees.get(system)
            if tree is None:
                tree = LockTree(self._numbers)
            acquisition = tree.acquire(owner, path, Mode.X)
            self._trees[system] = tree
        return ActionUnlocker(self, system, acquisition)

    def _give_back(self, system: str, acquisition: Acquisition) -> None:
        with self._guard:
            tree = self._trees.get(system)
            if tree is not None and tree.release(acquisition):
                self._forget_if_empty(system, tree)

    def _forget_if_empty(self, system: str, tree: LockTree) -> None:
        if not len(tree):
            del self._trees[system]


class ActionUnlocker:
    """Releases one lock of an action; does nothing if it was released before."""

    __slots__ = ("_actions", "acquisition", "system")

    def __init__(self, actions: LifecycleActionManager, system: str, acquisition: Acquisition) -> None:
        self._actions = actions
        self.system = system
        self.acquisition = acquisition

    @property
    def mode(self) -> Mode:
        """The mode in which the path is locked."""
        return self.acquisition.mode

    def unlock(self) -> None:
        """Release the lock."""
        self._actions._give_back(self.system, self.acquisition)  # noqa: SLF001 - an unlocker is a part of its manager

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.unlock()
