"""What a system's lifecycle actions lock: each system has a tree of its own.

A deploy changes its path and all below: X on the path, IX on each ancestor. A teardown or a delete changes the whole
system: X on the root. So deploys of disjoint paths run side by side, a deploy refuses others above, at and below its
path, and a teardown is alone.
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
    """The locks of all systems' actions; a system in which nothing is held is forgotten. Thread-safe.

    An owner is one action. It holds a path once, however often it locks it, so the first unlocker gives it back.
    """

    __slots__ = ("_guard", "_numbers", "_trees")

    def __init__(self) -> None:
        self._trees: dict[str, LockTree] = {}
        self._numbers = count(1)  # one for all trees: a system that returns gives no old record a new meaning
        self._guard = Lock()

    def deploy(self, system: str, owner: str, path: str | Path) -> ActionUnlocker:
        """Lock a path for a deploy, or raise a `Conflict` that names every blocker."""
        return self._lock(system, owner, path)

    def teardown(self, system: str, owner: str) -> ActionUnlocker:
        """Lock the whole system for a teardown, or raise a `Conflict` that names every blocker."""
        return self._lock(system, owner, ROOT)

    def delete(self, system: str, owner: str) -> ActionUnlocker:
        """Lock the whole system to delete it, or raise a `Conflict` that names every blocker."""
        return self._lock(system, owner, ROOT)

    def release(self, system: str, owner: str) -> tuple[Acquisition, ...]:
        """Give back everything that an action holds in a system, and return it."""
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
    """Gives one lock of an action back; a second time does nothing, nor does it after the action was released."""

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
        """Give the lock back."""
        self._actions._give_back(self.system, self.acquisition)  # noqa: SLF001 - two halves of one thing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.unlock()
