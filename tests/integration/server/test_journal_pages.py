"""Pages of the journal that look at a limited number of lines."""

import pytest

from stateward.engine import bounded_reads
from stateward.store.changes import Changes
from stateward.store.records import JournalEntry
from tests.contract.samples import an_entry
from tests.integration.server.server_harness import NS, ServerHarness

MANY = 30


async def append(harness: ServerHarness, *entries: JournalEntry) -> int:
    """Append entries to the journal; returns the number of the last one."""
    await harness.engine.store.transact(lambda tx: tx.apply(Changes(journal=[*entries])))
    return await harness.engine.store.reader.last_journal_seq()


@pytest.fixture
async def last(harness: ServerHarness, monkeypatch: pytest.MonkeyPatch) -> int:
    """Append many entries and one of a disk, and look at five per page; give the number of that one."""
    monkeypatch.setattr(bounded_reads, "READ_ROWS", 5)
    await harness.built("p1")
    return await append(harness, *(an_entry(ns=NS) for _ in range(MANY)), an_entry(ns=NS, kind="disk"))


@pytest.mark.parametrize("who", ["admin", "viewer"])
async def test_an_empty_page_continues_until_a_line_matches(harness: ServerHarness, last: int, who: str) -> None:
    after, empty = "0", 0
    while not (page := (await harness.get(f"/journal?kind=disk&limit=1&after={after}", who)).json())["items"]:
        empty += 1
        assert page["next"] == str(page["seq"])
        assert int(page["next"]) > int(after)
        after = page["next"]
    assert page["items"][0]["seq"] == page["seq"] == last
    assert empty >= MANY // 6


async def test_a_page_at_the_end_reports_how_far_the_journal_was_read(harness: ServerHarness, last: int) -> None:
    page = (await harness.get(f"/journal?kind=disk&after={last - 3}&actor=nobody")).json()
    assert (page["items"], page["next"], page["seq"]) == ([], None, last)


async def test_an_export_goes_on_over_lines_that_do_not_match(harness: ServerHarness, last: int) -> None:
    answer = await harness.get("/journal?kind=disk", headers={"Accept": "application/x-ndjson"})
    assert len(answer.text.splitlines()) == 1
