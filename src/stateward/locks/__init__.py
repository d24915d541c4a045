"""Intention locks on paths, after Gray: modes, a lock, a tree, a fair queue. Pure: no I/O, no clock, no asyncio."""

from stateward.locks.actions import ActionUnlocker, LifecycleActionManager
from stateward.locks.claims import Acquisition, Blocker, Conflict, Deadlock
from stateward.locks.lock import IntentionLock, Unlocker
from stateward.locks.modes import COMPATIBLE, Mode, as_mode, compatible, intention
from stateward.locks.paths import MAX_LEVELS, ROOT, Path, parse_path
from stateward.locks.tree import LockTree
from stateward.locks.waiting import Granted, LockQueue, Waiting

__all__ = [
    "COMPATIBLE",
    "MAX_LEVELS",
    "ROOT",
    "Acquisition",
    "ActionUnlocker",
    "Blocker",
    "Conflict",
    "Deadlock",
    "Granted",
    "IntentionLock",
    "LifecycleActionManager",
    "LockQueue",
    "LockTree",
    "Mode",
    "Path",
    "Unlocker",
    "Waiting",
    "as_mode",
    "compatible",
    "intention",
    "parse_path",
]
