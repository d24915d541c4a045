"""Doing something to all of a crowd, as a step of a larger action: the busy are waited for, those who fail are told.

Each round asks those who can be asked now; the rounds are noted with the operation, so that a crash goes on with the
right one. Nobody is kept busy with waiting: a round is the work of other operations, and between rounds the work is put
down for a moment.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

from msgspec import Struct

from stateward.domains.ovc.model import TRANSITION_STATES
from stateward.domains.ovc.queries import last_error
from stateward.engine import Ending, Job, ObservedOutcome, Request, Temporary
from stateward.lifecycle import FAILED
from stateward.store.port import Reader
from stateward.store.records import Key, Object, Status

BUSY_RETRY_S = 0.2
"""How many seconds pass before those are looked at again who were busy."""

MAX_DENIALS = 48
"""How often one is asked who denies it, because something stands in its queue; to fail costs a share of this."""

HALF_DONE = Ending(FAILED, error="cancelled, and part of it was done")
"""How an action ends that was cancelled when it was done to some of those whom it is for."""


class FanOut(Struct, frozen=True):
    """Who is left, what is asked of each, and how often it is asked of one who fails."""

    remaining: Callable[[], Awaitable[Sequence[Object]]]
    make_request: Callable[[Object], Request]
    max_tries: int = 3
    is_ready: Callable[[Object, Sequence[Object]], bool] = lambda _one, _left: True
    """Whether one can be asked while the others are still there."""


class FanOutResult(Struct, frozen=True):
    """What became of a crowd: those to whom it was done, with the states they were in, and why the others failed."""

    done: dict[str, str]
    failed: dict[str, str]


async def run_on_all(job: Job, step: str, fan_out: FanOut, reader: Reader) -> FanOutResult:
    """Do something to all of a crowd."""
    spent: Counter[str] = Counter()
    before: dict[str, str] = {}
    for number in count():
        asked: dict[str, str] = await job.once(f"{step} {number}: who", lambda: _ready_targets(fan_out, spent))
        if not asked:
            break
        before |= asked
        found = {one.id: one for one in await fan_out.remaining()}
        denied = await job.spawn(
            f"{step} {number}", [fan_out.make_request(found[id_]) for id_ in asked if id_ in found]
        )
        spent.update({id_: 1 if id_ in denied else MAX_DENIALS // fan_out.max_tries for id_ in asked})
        if len(denied) == len(asked):
            await job.once(f"{step} {number}: pause", lambda: asyncio.sleep(BUSY_RETRY_S))
    failed = {one.id: await _failure_reason(reader, one) for one in await fan_out.remaining()}
    return FanOutResult({id_: state for id_, state in before.items() if id_ not in failed}, failed)


async def _ready_targets(fan_out: FanOut, spent: Counter[str]) -> dict[str, str]:
    """Return those who can be asked now, with their states; raises where others have to be waited for first."""
    left = [
        one for one in await fan_out.remaining() if spent[one.id] < MAX_DENIALS // fan_out.max_tries * fan_out.max_tries
    ]
    free = [one for one in left if one.state not in TRANSITION_STATES]
    ready = {one.id: one.state for one in free if fan_out.is_ready(one, left)}
    if left and not ready:
        busy = [one.id for one in left if one.state in TRANSITION_STATES]
        if busy:
            raise Temporary(f"waits for {', '.join(busy[:5])}", after=BUSY_RETRY_S)
        return {one.id: one.state for one in free}  # nobody will come first
    return ready


async def none_done(job: Job, reader: Reader) -> bool:
    """Tell whether of all that was asked of others nothing was done: each of these operations was cancelled."""
    return all(one.status is Status.CANCELLED for one in await reader.children_of(job.key))


async def observe_cancelled(job: Job, reader: Reader) -> ObservedOutcome | Ending:
    """Say what became of cancelled work that others do."""
    return ObservedOutcome.NOT_DONE if await none_done(job, reader) else HALF_DONE


async def _failure_reason(reader: Reader, one: Object) -> str:
    return await last_error(reader, Key(one.ns, one.id)) or one.error or f"it is {one.state}"
