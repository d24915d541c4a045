"""Intention locks on paths, after Gray. Pure: no I/O, no clock, no asyncio.

The engine and the systems domain use `modes` and `paths` alone. The locks in memory (`inmemory/`) are for embedding
users, tests and benches.
"""

from stateward.locks.inmemory.claims import Acquisition, Deadlock, LockBlocker, LockConflict
from stateward.locks.inmemory.intention_lock import IntentionLock, Unlocker
from stateward.locks.inmemory.lifecycle_actions import ActionUnlocker, LifecycleActionManager
from stateward.locks.inmemory.lock_queue import GrantedLock, LockQueue, WaitTicket
from stateward.locks.inmemory.lock_tree import LockTree
from stateward.locks.modes import COMPATIBLE, Mode, as_mode, compatible, intention
from stateward.locks.paths import MAX_LEVELS, ROOT, Path, parse_path

__all__ = [
    "COMPATIBLE",
    "MAX_LEVELS",
    "ROOT",
    "Acquisition",
    "ActionUnlocker",
    "Deadlock",
    "GrantedLock",
    "IntentionLock",
    "LifecycleActionManager",
    "LockBlocker",
    "LockConflict",
    "LockQueue",
    "LockTree",
    "Mode",
    "Path",
    "Unlocker",
    "WaitTicket",
    "as_mode",
    "compatible",
    "intention",
    "parse_path",
]
