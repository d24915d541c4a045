"""What a worker has in work: each operation with its task, and why a task is told to stop."""

import asyncio
from typing import Literal

from stateward.store.records import Claim, Key, WorkItem

StopReason = Literal["", "fenced", "cancelled", "lost"]


class RunningOperation:
    """An operation in work: its claim, its task, why the task was told to stop, if it was, and whether it was lost.

    A spare knows those `before` it in its place, until one of them has told so; who is `over` has left its place.
    """

    __slots__ = ("claim", "orphaned", "predecessors", "slot_released", "stop_reason", "task")

    def __init__(self, claim: Claim, predecessors: tuple[Key, ...]) -> None:
        self.claim = claim
        self.predecessors = predecessors
        self.task: asyncio.Task[None] | None = None
        self.stop_reason: StopReason = ""
        self.orphaned = False
        self.slot_released = False


def stop_if_superseded(running: RunningOperation, work: WorkItem | None) -> None:
    """Stop what is no longer to be done, now that it is known who owns what."""
    if work is None or work.epoch != running.claim.work.epoch:
        request_stop(running, "lost")
    elif work.fenced:
        request_stop(running, "fenced")
    elif work.cancelled and not running.claim.work.cancelled:
        request_stop(running, "cancelled")


def request_stop(running: RunningOperation, why: StopReason) -> None:
    """Stop a task, for a reason that weighs more than one it was told before."""
    if running.task is not None and (
        not running.stop_reason or (running.stop_reason == "cancelled" and why != "cancelled")
    ):
        running.stop_reason = why
        running.task.cancel()
