"""Intention locks on paths, after Gray: modes, paths, and which locks conflict. Pure: no I/O, no clock, no asyncio.

The locks themselves are rows of the store, kept by the engine.
"""

from stateward.locks.modes import COMPATIBLE, Mode, as_mode, compatible, intention
from stateward.locks.paths import MAX_LEVELS, ROOT, Path, conflict_between, parse_path

__all__ = [
    "COMPATIBLE",
    "MAX_LEVELS",
    "ROOT",
    "Mode",
    "Path",
    "as_mode",
    "compatible",
    "conflict_between",
    "intention",
    "parse_path",
]
