"""MCIs get the roll-up of their VMs, whatever fails while the journal is read."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from stateward.domains.mci.control import status_updater
from stateward.domains.mci.control.status_updater import MciStatusUpdater
from stateward.domains.mci.lifecycle import MciState
from stateward.store.errors import Unavailable
from stateward.store.records import Key
from tests.integration.domains.mci.conftest import ANN, NS, PATIENT, MciHarness, mci
from tests.waiting import until


class Unwell:
    """An engine that fails at the first few attempts of some calls."""

    def __init__(self, harness: MciHarness, **troubles: list[Exception]) -> None:
        self._engine, self._troubles = harness.engine, troubles
        self.after: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def _fail(self, what: str) -> None:
        if self._troubles.get(what):
            raise self._troubles[what].pop(0)

    async def watch(self, after: int, *more: Any) -> AsyncIterator[Any]:
        """Watch, and break off."""
        self.after.append(after)
        self._fail("watch")
        async for line in self._engine.watch(after, *more):
            yield line
            self._fail("later")

    async def act(self, *what: Any, **how: Any) -> Any:
        """Act, or fail."""
        self._fail("act")
        return await self._engine.act(*what, **how)


async def no_time(_seconds: float) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("trouble", [Unavailable("away"), ValueError("broken")], ids=["store", "fault"])
async def test_the_journal_is_read_on_after_a_failure_and_no_line_is_missed(
    harness: MciHarness, trouble: Exception
) -> None:
    engine = Unwell(harness, watch=[trouble, trouble], later=[trouble])
    follower = MciStatusUpdater(engine, Random(1))  # type: ignore[arg-type]
    noted: list[Key] = []
    follower.mark_dirty = lambda mci, after=0.0: noted.append(mci)  # type: ignore[method-assign]
    task = asyncio.create_task(follower.run(no_time))
    try:
        async with asyncio.timeout(PATIENT):
            while len(engine.after) < 3:  # it reads, after two failures
                await asyncio.sleep(0.005)
        await harness.created(mci())
        async with asyncio.timeout(PATIENT):
            while len(noted) < 4 or len(engine.after) < 4:  # two VMs, each of them Creating and then Running
                await asyncio.sleep(0.005)
    finally:
        task.cancel()
    assert noted == [Key(NS, "m1")] * 4
    assert engine.after == sorted(engine.after)


async def test_pauses_grow_while_nothing_works_and_are_short_again_after(harness: MciHarness) -> None:
    away = Unavailable("away")
    engine = Unwell(harness, watch=[away] * 5)
    follower = MciStatusUpdater(engine, Random(1))  # type: ignore[arg-type]
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    task = asyncio.create_task(follower.run(sleep))
    await until(lambda: len(engine.after) >= 6)
    task.cancel()
    assert len(pauses) == 5
    assert pauses[-1] > 4 * pauses[0]


async def test_an_mci_that_could_not_be_settled_is_looked_at_again(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_updater, "RETRY_AFTER_S", 0.01)
    await harness.plugin.reconciler.status_updater.close()
    await harness.created(mci())
    verdict = await harness.service.control(NS, "m1", "suspend", ANN)
    await harness.ended(verdict.whole)
    await harness.engine.act(NS, "m1", "mixed", actor="controller")  # as if somebody had told it wrongly
    engine = Unwell(harness, act=[Unavailable("away"), Unavailable("away")])
    follower = MciStatusUpdater(engine, Random(1))  # type: ignore[arg-type]
    follower.mark_dirty(Key(NS, "m1"), 0.0)
    await harness.until(lambda now: now == MciState.SUSPENDED)
    await follower.close()
