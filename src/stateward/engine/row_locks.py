"""Durable intention locks: the same rules as in `stateward.locks`, over rows that operations hold."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from stateward.locks.modes import Mode, compatible, intention
from stateward.locks.paths import Path, parse_path
from stateward.store.records import Lock


def conflicts(one: Lock, other: Lock) -> bool:
    """Tell whether two locks of a tree cannot be held at once by different operations."""
    if one.op == other.op:
        return False
    here, there = _read(one.path), _read(other.path)
    if here == there:
        return not compatible(Mode(one.mode), Mode(other.mode))
    if _below(there, here):
        return not compatible(Mode(one.mode), intention(Mode(other.mode)))
    if _below(here, there):
        return not compatible(intention(Mode(one.mode)), Mode(other.mode))
    return False  # strangers meet only on common ancestors, where both have mere intentions


def conflicting_locks(wanted: Lock, locks: Iterable[Lock]) -> list[Lock]:
    """Return the locks, held or asked for before, that a lock has to wait for."""
    return [lock for lock in locks if conflicts(wanted, lock)]


def grantable_operations(locks: Sequence[Lock]) -> list[str]:
    """Return the operations that may now have all locks they wait for; no wish overtakes an earlier, clashing one."""
    held = [lock for lock in locks if not lock.waiting]
    waiting: dict[str, list[Lock]] = {}
    for lock in locks:
        if lock.waiting:
            waiting.setdefault(lock.op, []).append(lock)
    lucky: list[str] = []
    before = list(held)
    for op, wishes in waiting.items():
        if not any(conflicting_locks(wish, before) for wish in wishes):
            lucky.append(op)
        before += wishes
    return lucky


@lru_cache(maxsize=10_000)  # each lock of a tree is compared with all others
def _read(path: str) -> Path:
    return parse_path(path)


def _below(path: Path, ancestor: Path) -> bool:
    return len(path) > len(ancestor) and path[: len(ancestor)] == ancestor
