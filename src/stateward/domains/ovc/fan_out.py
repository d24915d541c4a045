"""Fan-out of an action to many objects, as a step of a larger operation.

The step runs in rounds. Each round spawns child operations on the objects that are ready, and waits for the busy ones.
Rounds are checkpointed with the operation, so that a crash goes on with the right one. No worker waits meanwhile: the
operation is suspended until its children have ended.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

from msgspec import Struct

from stateward.domains.ovc.model import TRANSITION_STATES
from stateward.engine import Ending, Job, ObservedOutcome, Request, Temporary
from stateward.lifecycle import FAILED
from stateward.store.port import Reader
from stateward.store.records import Object, Status

BUSY_RETRY_S = 0.2
"""Seconds before busy objects are checked again."""

MAX_DENIALS = 48
"""Denials before an object counts as failed; a failed child operation costs MAX_DENIALS / max_tries."""

HALF_DONE = Ending(FAILED, error="cancelled, and part of it was done")
"""The end of a cancelled action that was done to some of its objects."""


class FanOut(Struct, frozen=True):
    """The objects that remain, the request for each, and the tries for an object that fails."""

    remaining: Callable[[], Awaitable[Sequence[Object]]]
    make_request: Callable[[Object], Request]
    max_tries: int = 3
    is_ready: Callable[[Object, Sequence[Object]], bool] = lambda _one, _left: True
    """Whether an object can be asked while the given others remain."""


class FanOutResult(Struct, frozen=True):
    """The result: objects that are done, with their states before, and the errors of the others."""

    done: dict[str, str]
    failed: dict[str, str]


async def run_on_all(job: Job, step: str, fan_out: FanOut, reader: Reader) -> FanOutResult:
    """Run an action on all remaining objects; returns when none is left, or the rest has failed."""
    spent: Counter[str] = Counter()
    before: dict[str, str] = {}
    for number in count():
        asked: dict[str, str] = await job.once(f"{step} {number}: who", lambda: _ready_targets(fan_out, spent))
        if not asked:
            break
        before |= asked
        remaining = {target.id: target for target in await fan_out.remaining()}
        denied = await job.spawn(
            f"{step} {number}", [fan_out.make_request(remaining[id_]) for id_ in asked if id_ in remaining]
        )
        spent.update({id_: 1 if id_ in denied else MAX_DENIALS // fan_out.max_tries for id_ in asked})
        if len(denied) == len(asked):
            await job.sleep(BUSY_RETRY_S, step=f"{step} {number}: pause")
    failed = {}
    for target in await fan_out.remaining():
        latest = await reader.operations_of(target.key, 1)
        failed[target.id] = (latest[0].error if latest else None) or target.error or f"it is {target.state}"
    return FanOutResult({id_: state for id_, state in before.items() if id_ not in failed}, failed)


async def _ready_targets(fan_out: FanOut, spent: Counter[str]) -> dict[str, str]:
    """Return the objects that can be asked now, with their states; raises Temporary while only busy ones remain."""
    left = [
        target
        for target in await fan_out.remaining()
        if spent[target.id] < MAX_DENIALS // fan_out.max_tries * fan_out.max_tries
    ]
    free = [target for target in left if target.state not in TRANSITION_STATES]
    ready = {target.id: target.state for target in free if fan_out.is_ready(target, left)}
    if left and not ready:
        busy = [target.id for target in left if target.state in TRANSITION_STATES]
        if busy:
            raise Temporary(f"waits for {', '.join(busy[:5])}", after=BUSY_RETRY_S)
        return {target.id: target.state for target in free}  # none is busy, so no other object will become ready first
    return ready


async def none_done(job: Job, reader: Reader) -> bool:
    """Tell whether every child operation was cancelled, so that nothing was done."""
    return all(child.status is Status.CANCELLED for child in await reader.children_of(job.key))


async def observe_cancelled(job: Job, reader: Reader) -> ObservedOutcome | Ending:
    """Return the outcome of a cancelled fan-out: not done, or half done."""
    return ObservedOutcome.NOT_DONE if await none_done(job, reader) else HALF_DONE
