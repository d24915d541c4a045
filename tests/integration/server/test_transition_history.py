"""The transitions of the last hour, minute by minute."""

from datetime import datetime

from msgspec.structs import replace

from stateward.server.transition_history import MINUTES, TransitionHistory
from stateward.store.changes import Changes
from stateward.store.records import JournalEntry
from tests.integration.server.server_harness import NS, ServerHarness

ENTRY = JournalEntry(NS, "p1", "test.pump", None, 0.0, "user", "ann", "tune", "idle", "tuning", None)


async def append(harness: ServerHarness, *times: float, ns: str = NS) -> None:
    """Append transitions of these times to the journal."""
    entries = [replace(ENTRY, at=at, ns=ns) for at in times]
    await harness.engine.store.transact(lambda tx: tx.apply(Changes(journal=entries)))


async def test_the_last_hour_is_counted_by_minutes_and_namespaces(harness: ServerHarness) -> None:
    minute = await harness.engine.store.reader.time() // 60 * 60
    await append(harness, minute - 3_600, minute - 600, minute - 590, minute - 530)
    await append(harness, minute - 530, ns="other")
    await append(harness, minute - 530, ns="(system)")
    answer = (await harness.get("/journal/counts")).json()
    assert (answer["step_s"], len(answer["counts"])) == (60, MINUTES)
    step = round((minute - 600 - datetime.fromisoformat(answer["since"]).timestamp()) / 60)
    assert answer["counts"][step : step + 3] == [2, 2, 0]
    await harness.built("p1")
    mine = (await harness.get(f"/journal/counts?ns={NS}")).json()["counts"]
    assert mine[step : step + 2] == [2, 1]


async def test_a_minute_that_is_over_is_counted_once_and_the_last_ones_again(harness: ServerHarness) -> None:
    reader = harness.engine.store.reader
    history, now = TransitionHistory(lambda: reader), await reader.time()
    early = now - 1_800
    await append(harness, early, now)
    assert sum((await history.counts(NS.__eq__)).counts) == 2
    await append(harness, early, now)
    assert sum((await history.counts(NS.__eq__)).counts) == 3


async def test_the_first_entry_of_the_hour_is_found_in_a_long_journal(harness: ServerHarness) -> None:
    now = await harness.engine.store.reader.time()
    await append(harness, *(now - 7_200 + number for number in range(7_000)))
    counts = (await harness.get("/journal/counts")).json()["counts"]
    assert counts[1:-5] == [60] * (MINUTES - 6)
