"""Durable intention locks: the same rules as in `stateward.locks`, over rows that operations hold."""

from collections.abc import Iterable, Sequence

from stateward.locks.modes import Mode, compatible, intention
from stateward.locks.paths import Path, parse_path
from stateward.store.records import Lock


def clash(one: Lock, other: Lock) -> bool:
    """Tell whether two locks of a tree cannot be held at once by different operations."""
    if one.op == other.op:
        return False
    here, there = parse_path(one.path), parse_path(other.path)
    mine, theirs = Mode(one.mode), Mode(other.mode)
    if here == there:
        return not compatible(mine, theirs)
    if _below(there, here):
        return not compatible(mine, intention(theirs))
    if _below(here, there):
        return not compatible(intention(mine), theirs)
    return False  # strangers meet only on common ancestors, where both have mere intentions


def in_the_way(wanted: Lock, locks: Iterable[Lock]) -> list[Lock]:
    """Return the locks, held or asked for before, that a lock has to wait for."""
    return [lock for lock in locks if clash(wanted, lock)]


def granted(locks: Sequence[Lock]) -> list[str]:
    """Return the operations that may now have all locks they wait for; no wish overtakes an earlier, clashing one."""
    held = [lock for lock in locks if not lock.waiting]
    waiting: dict[str, list[Lock]] = {}
    for lock in locks:
        if lock.waiting:
            waiting.setdefault(lock.op, []).append(lock)
    lucky: list[str] = []
    before = list(held)
    for op, wishes in waiting.items():
        if not any(in_the_way(wish, before) for wish in wishes):
            lucky.append(op)
        before += wishes
    return lucky


def _below(path: Path, ancestor: Path) -> bool:
    return len(path) > len(ancestor) and tuple(path[: len(ancestor)]) == tuple(ancestor)
