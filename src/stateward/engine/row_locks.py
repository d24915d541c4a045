"""Durable intention locks: the rules of `stateward.locks`, applied to the lock rows of operations."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from stateward.locks import Mode, Path, conflict_between, parse_path
from stateward.store.records import Lock


def conflicts(lock: Lock, other: Lock) -> bool:
    """Return whether different operations cannot hold two locks of a tree at once."""
    return lock.op != other.op and conflict_between(
        _read(lock.path), Mode(lock.mode), _read(other.path), Mode(other.mode)
    )


def conflicting_locks(wanted: Lock, locks: Iterable[Lock]) -> list[Lock]:
    """Return the locks, held or waiting, that a lock conflicts with."""
    return [lock for lock in locks if conflicts(wanted, lock)]


def grantable_operations(locks: Sequence[Lock]) -> list[str]:
    """Return the operations that can get all locks they wait for; no lock overtakes an earlier, conflicting one."""
    held = [lock for lock in locks if not lock.waiting]
    waiting: dict[str, list[Lock]] = {}
    for lock in locks:
        if lock.waiting:
            waiting.setdefault(lock.op, []).append(lock)
    grantable: list[str] = []
    earlier = list(held)
    for op, requested in waiting.items():
        if not any(conflicting_locks(lock, earlier) for lock in requested):
            grantable.append(op)
        earlier += requested
    return grantable


@lru_cache(maxsize=10_000)  # each lock of a tree is compared with all others
def _read(path: str) -> Path:
    return parse_path(path)
