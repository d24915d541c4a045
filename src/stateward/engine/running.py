"""What a worker has in work: each operation with its task, and why a task is told to stop."""

import asyncio
from typing import Literal

from stateward.store.records import Claim, Key, Work

Why = Literal["", "fenced", "cancelled", "lost"]


class Running:
    """An operation in work: its claim, its task, why the task was told to stop, if it was, and whether it was lost.

    A spare knows those `before` it in its place, until one of them has told so; who is `over` has left its place.
    """

    __slots__ = ("astray", "before", "claim", "over", "task", "why")

    def __init__(self, claim: Claim, before: tuple[Key, ...]) -> None:
        self.claim = claim
        self.before = before
        self.task: asyncio.Task[None] | None = None
        self.why: Why = ""
        self.astray = False
        self.over = False


def heed(running: Running, work: Work | None) -> None:
    """Stop what is no longer to be done, now that it is known who owns what."""
    if work is None or work.epoch != running.claim.work.epoch:
        tell_to_stop(running, "lost")
    elif work.fenced:
        tell_to_stop(running, "fenced")
    elif work.cancelled and not running.claim.work.cancelled:
        tell_to_stop(running, "cancelled")


def tell_to_stop(running: Running, why: Why) -> None:
    """Stop a task, for a reason that weighs more than one it was told before."""
    if running.task is not None and (not running.why or (running.why == "cancelled" and why != "cancelled")):
        running.why = why
        running.task.cancel()
