"""The batcher: many callers, few batches, an answer for each caller; an unreachable store is tried again."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

import pytest

from stateward.engine.transaction_batcher import TransactionBatcher
from stateward.errors import BadInput, StatewardError
from stateward.store.errors import NotADatabase, StoreTimeout, Unavailable, UnstorableValue
from stateward.testing.virtual_loop import VirtualLoop


def run(course: Coroutine[Any, Any, None]) -> VirtualLoop:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(course)
    finally:
        loop.close()
    return loop


class Processor:
    """Answers each number with its double; notes the batches, and fails when told to."""

    def __init__(self, *errors: Exception, seconds: float = 1.0) -> None:
        self.errors = list(errors)
        self.seconds = seconds
        self.batches: list[list[int]] = []

    async def answer(self, items: Sequence[int]) -> Sequence[int | StatewardError]:
        self.batches.append(list(items))
        await asyncio.sleep(self.seconds)
        if self.errors:
            raise self.errors.pop(0)
        return [BadInput("item", item, "positive") if item < 0 else 2 * item for item in items]

    def batcher(self, *, most: int = 500, patience: float = 30.0) -> TransactionBatcher[int, int]:
        return TransactionBatcher(self.answer, Random(1), max_size=most, timeout_s=patience)


def test_what_comes_while_a_batch_is_written_is_the_next_batch() -> None:
    processor = Processor()

    async def course() -> None:
        batcher = processor.batcher()
        first = batcher.submit(1)
        await asyncio.sleep(0.5)
        others = [batcher.submit(number) for number in (2, 3, 4)]
        assert [await first, *await asyncio.gather(*others)] == [2, 4, 6, 8]

    run(course())
    assert processor.batches == [[1], [2, 3, 4]]


def test_what_is_submitted_together_is_one_batch() -> None:
    processor = Processor()

    async def course() -> None:
        batcher = processor.batcher()
        await asyncio.gather(*(batcher.submit(number) for number in range(5)))

    run(course())
    assert processor.batches == [[0, 1, 2, 3, 4]]


def test_a_batch_has_a_largest_size() -> None:
    processor = Processor()

    async def course() -> None:
        batcher = processor.batcher(most=2)
        assert await asyncio.gather(*(batcher.submit(number) for number in range(5))) == [0, 2, 4, 6, 8]

    run(course())
    assert processor.batches == [[0, 1], [2, 3], [4]]


def test_an_item_that_is_refused_harms_nobody_else() -> None:
    processor = Processor()

    async def course() -> None:
        batcher = processor.batcher()
        good, bad = batcher.submit(1), batcher.submit(-1)
        assert await good == 2
        with pytest.raises(BadInput):
            await bad

    run(course())


@pytest.mark.parametrize("fault", [LookupError, UnstorableValue])
def test_a_batch_that_fails_as_a_whole_is_tried_item_by_item(fault: type[Exception]) -> None:
    processor = Processor(fault("one of them is impossible"), fault("this one"))

    async def course() -> None:
        batcher = processor.batcher()
        bad, good = batcher.submit(1), batcher.submit(2)
        with pytest.raises(fault, match="this one"):
            await bad
        assert await good == 4

    run(course())
    assert processor.batches == [[1, 2], [1], [2]]


def test_a_store_that_is_out_of_reach_is_tried_again() -> None:
    processor = Processor(Unavailable("gone"), Unavailable("still gone"))

    async def course() -> None:
        assert await processor.batcher().submit(1) == 2

    run(course())
    assert processor.batches == [[1], [1], [1]]


def test_patience_ends() -> None:
    processor = Processor(*(Unavailable("gone") for _ in range(100)))

    async def course() -> None:
        with pytest.raises(Unavailable):
            await processor.batcher(patience=10.0).submit(1)

    assert run(course()).time() <= 10.0


def test_an_attempt_that_begins_late_does_not_outlast_the_patience() -> None:
    processor = Processor(*(Unavailable("gone") for _ in range(100)), seconds=9.0)

    async def course() -> None:
        with pytest.raises(StoreTimeout):
            await processor.batcher(patience=10.0).submit(1)

    assert run(course()).time() == 10.0
    assert len(processor.batches) == 2


def test_who_comes_while_an_attempt_hangs_waits_no_longer_than_the_patience() -> None:
    processor = Processor(seconds=1000.0)

    async def course() -> None:
        clock = asyncio.get_running_loop().time
        batcher = processor.batcher(most=2, patience=10.0)
        first = [batcher.submit(number) for number in (1, 2)]
        await asyncio.sleep(4.0)
        later = [batcher.submit(number) for number in (3, 4, 5)]
        ends = await asyncio.gather(*first, *later, return_exceptions=True)
        assert {type(end) for end in ends} == {StoreTimeout}
        assert clock() <= 14.1
        await batcher.drain()

    run(course())
    assert processor.batches == [[1, 2], [3, 4]]  # the fifth has no time left when its turn comes


def test_an_error_that_will_not_pass_is_told_at_once() -> None:
    processor = Processor(NotADatabase("something else is there"))

    async def course() -> None:
        with pytest.raises(NotADatabase):
            await processor.batcher().submit(1)

    run(course())
    assert processor.batches == [[1]]


def test_after_a_failed_batch_the_next_one_is_served() -> None:
    processor = Processor(NotADatabase("something else is there"))

    async def course() -> None:
        batcher = processor.batcher()
        with pytest.raises(NotADatabase):
            await batcher.submit(1)
        assert await batcher.submit(2) == 4

    run(course())


def test_a_caller_that_gives_up_does_not_hold_up_the_others() -> None:
    processor = Processor()

    async def course() -> None:
        batcher = processor.batcher()
        lost, kept = batcher.submit(1), batcher.submit(2)
        lost.cancel()
        assert await kept == 4

    run(course())
    assert processor.batches == [[1, 2]]


def test_draining_waits_for_what_was_submitted_meanwhile_too() -> None:
    processor = Processor()
    done: list[int] = []

    async def course() -> None:
        batcher = processor.batcher()
        note: Callable[[asyncio.Future[int]], None] = lambda future: done.append(future.result())  # noqa: E731
        batcher.submit(1).add_done_callback(note)
        asyncio.get_running_loop().call_later(0.5, lambda: batcher.submit(2).add_done_callback(note))
        await batcher.drain()
        await asyncio.sleep(0)

    run(course())
    assert done == [2, 4]


def test_draining_with_nothing_under_way_returns_at_once() -> None:
    async def course() -> None:
        await Processor().batcher().drain()

    assert run(course()).time() == 0.0


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_a_batcher_that_is_torn_down_keeps_nobody_waiting_and_can_be_drained(steps: int) -> None:
    processor = Processor()

    async def course() -> None:
        batcher = processor.batcher(most=1)
        futures = [batcher.submit(number) for number in (1, 2)]
        (task,) = asyncio.all_tasks() - {asyncio.current_task()}
        for _ in range(steps):
            await asyncio.sleep(0.0)
        task.cancel()
        await batcher.drain()
        assert [one.cancelled() for one in futures] == [True, True]
        assert await batcher.submit(3) == 6

    run(course())


def test_an_item_is_not_given_up_because_another_one_of_its_batch_has_waited_for_too_long() -> None:
    processor = Processor(seconds=9.0)

    async def course() -> None:
        batcher = processor.batcher(patience=10.0)
        first = batcher.submit(1)
        await asyncio.sleep(0.5)
        early = batcher.submit(2)
        await asyncio.sleep(8.0)
        late = batcher.submit(3)
        assert await first == 2
        processor.seconds = 1.0
        with pytest.raises(StoreTimeout):
            await early
        assert await late == 6

    run(course())
    assert processor.batches == [[1], [2, 3], [3]]
