"""Pruning over HTTP and once an hour, and the horizon that readers of the journal get."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest

from stateward.access import Role, Tokens
from stateward.access.tokens import SYSTEM, token_kind
from stateward.config import Config
from stateward.engine import Engine
from stateward.engine.maintenance.horizon import horizon
from stateward.engine.maintenance.retention import prune
from stateward.server.routes.retention_routes import _prune_if_due, prune_hourly
from stateward.server.run import open_application
from stateward.store.port import Store
from stateward.store.records import Key
from stateward.store.sqlite import SqliteStore
from tests.contract.samples import a_key_record, an_entry, an_object, an_operation
from tests.contract.store_calls import write
from tests.integration.server.live_server import LiveServer, said
from tests.integration.server.server_harness import NS, ServerHarness, open_server
from tests.waiting import until

DAY = 86_400


class Years:
    """A clock by which time passes at a word."""

    def __init__(self) -> None:
        self.ahead = -1000.0 * DAY

    def __call__(self) -> float:
        return time.time() + self.ahead

    def pass_days(self, days: float) -> None:
        self.ahead += days * DAY


@pytest.fixture
def years() -> Years:
    return Years()


@pytest.fixture
async def aged_server(years: Years) -> AsyncIterator[ServerHarness]:
    """Give a harness in which a pump was built, used and scrapped a hundred days ago, and another one was built."""
    async with open_server(SqliteStore(":memory:", clock=years)) as harness:
        await harness.built("p1")
        await harness.built("p2")
        scrapping = await harness.post(f"/ns/{NS}/objects/p1/actions/scrap", headers={"Idempotency-Key": "k"})
        await harness.ended(scrapping)
        await harness.post(f"/ns/{NS}/objects/p1/actions/forget")
        years.pass_days(100)
        await harness.built("p3")
        yield harness


async def test_a_dry_run_says_what_would_go_and_touches_nothing(aged_server: ServerHarness) -> None:
    before = await aged_server.everything()
    said = (await aged_server.post("/prune", {"older": 90 * DAY, "dry_run": True})).json()
    assert (said["operations"], said["objects"], said["next"]) == (3, 1, None)
    assert said["lines"] > 0
    assert said["answers"] > 0
    assert await aged_server.everything() == before
    done = (await aged_server.post("/prune", {"older": 90 * DAY})).json()
    assert {**done, "before": ""} == {**said, "before": ""}


async def test_what_is_younger_stays(aged_server: ServerHarness) -> None:
    done = (await aged_server.post("/prune", {"older": 101 * DAY})).json()
    assert (done["operations"], done["objects"], done["lines"], done["answers"]) == (0, 0, 0, 0)


async def test_a_page_of_the_journal_tells_where_it_is_not_whole(aged_server: ServerHarness) -> None:
    assert (await aged_server.get("/journal")).json()["pruned"] is None
    await aged_server.post("/prune", {"older": 90 * DAY})
    kept = (await horizon(aged_server.engine.store.reader)).seq
    assert (await aged_server.get("/journal")).json()["pruned"] == kept
    assert (await aged_server.get(f"/journal?after={kept}")).json()["pruned"] is None
    assert (await aged_server.get(f"/ns/{NS}/objects/p2/history")).json()["pruned"] == kept


async def test_so_does_an_export(aged_server: ServerHarness) -> None:
    def exported(after: int) -> Any:
        return aged_server.get(f"/journal?after={after}", headers={"Accept": "application/x-ndjson"})

    assert "Stateward-Pruned" not in (await exported(0)).headers
    await aged_server.post("/prune", {"older": 90 * DAY})
    kept = (await horizon(aged_server.engine.store.reader)).seq
    assert (await exported(0)).headers["Stateward-Pruned"] == str(kept)
    assert "Stateward-Pruned" not in (await exported(kept)).headers


async def test_the_state_at_a_time_before_is_not_known(aged_server: ServerHarness, years: Years) -> None:
    def at(days: float) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(years() + days * DAY))

    async def told(days: float) -> dict[str, Any]:
        answer = (await aged_server.get(f"/ns/{NS}/objects/p2/at", params={"time": at(days)})).json()
        return {name: answer[name] for name in ("state", "known")}

    assert await told(-200) == {"state": None, "known": True}
    await aged_server.post("/prune", {"older": 90 * DAY})
    assert await told(-200) == {"state": None, "known": False}
    assert await told(-95) == {"state": "idle", "known": True}


@pytest.mark.parametrize("body", [{}, {"older": 0}, {"older": 3599}, {"older": "90d"}, {"older": 9000, "after": -1}])
async def test_a_limit_that_makes_no_sense_is_refused(harness: ServerHarness, body: dict[str, Any]) -> None:
    assert (await harness.post("/prune", body)).status_code == 400


@pytest.mark.parametrize("who", ["viewer", "operator", "local admin", "agent"])
async def test_only_administrators_of_everything_prune(harness: ServerHarness, who: str) -> None:
    assert (await harness.post("/prune", {"older": 90 * DAY}, who)).status_code == 403


async def test_the_administrator_stands_in_the_journal(aged_server: ServerHarness) -> None:
    await aged_server.post("/prune", {"older": 90 * DAY})
    lines = (await aged_server.get("/journal?actor=controller&kind=engine.history")).json()["items"]
    assert [(line["event"], line["who"]) for line in lines] == [("prune", "ada")]


# --- the stream ------------------------------------------------------------------------------------------------------


async def test_a_reader_from_behind_the_horizon_gets_a_snapshot_and_is_told_of_the_gap(live_server: LiveServer) -> None:
    await live_server.define("a", "one", "two")
    store = live_server.engine.store
    limit = await store.reader.time() + 0.001
    await until(store.reader.time, lambda now: now > limit)
    await write(store, journal=[an_entry("x", at=1.0), an_entry("y", at=limit + 1)])  # of no object: it goes
    await prune(store, limit)
    kept = (await horizon(store.reader)).seq
    assert kept > 0
    async with live_server.stream() as stream:
        await stream.send(json.dumps({"after": 0}))
        first = await said(stream)
        while "gap" not in first:  # the first message only says that the stream is open
            assert not first.get("lines")
            first = await said(stream)
        assert first["gap"] == {"after": 0, "horizon": kept}
        assert first["snapshot"]["seq"] > kept
        assert first["snapshot"]["objects"] == {"a": {"ovc.vm": {"VIRTUAL": 2}}}
        await live_server.define("a", "three")
        async with asyncio.timeout(60):
            while not (lines := (await said(stream))["lines"]):
                pass
        assert lines[0]["object"] == "three"


# --- by the hour -----------------------------------------------------------------------------------------------------


async def filled(store: Store) -> None:
    """Write something that ended long ago, and something new."""
    now = await store.reader.time()
    await write(
        store,
        objects=[an_object("a")],
        operations=[an_operation("x", ended=200.0)],
        journal=[an_entry("a", op="x"), an_entry("a", op="x", at=200.0), an_entry("a", at=now)],
        idempotency_records=[a_key_record("k")],
    )


async def until_gone(store: Store) -> None:
    """Wait until the old operation is gone."""
    await until(lambda: store.reader.operation(Key("acme", "x")), lambda operation: operation is None)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first turn begin at once."""
    monkeypatch.setattr("stateward.server.routes.retention_routes.START_SPREAD_S", 0.0)


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = SqliteStore(":memory:")
    await store.open()
    yield store
    await store.close()


async def test_with_a_limit_a_process_prunes_by_itself(store: Store) -> None:
    await filled(store)
    async with prune_hourly(store, 30):
        await until_gone(store)


async def test_by_the_hour_only_what_follows_the_last_run_is_looked_at_and_once_a_day_all(years: Years) -> None:
    store, span = SqliteStore(":memory:", clock=years), AsyncMock()
    await store.open()
    span.side_effect = store.retention.journal_span
    walked = []
    with patch.object(store.retention, "journal_span", span):
        for _ in range(26):
            await write(store, journal=[an_entry(at=years()) for _ in range(3)])
            years.pass_days(1 / 24)
            span.reset_mock()
            assert await _prune_if_due(store, 1.0) == 3_600
            walked.append(span.await_args_list[0].args[0])
    assert [hour for hour, after in enumerate(walked) if not after] == [0, 24]
    assert walked[23] > walked[22] > walked[2] > 0
    await store.close()


async def test_by_the_hour_tokens_are_removed_that_ended_before_the_limit(years: Years) -> None:
    store = SqliteStore(":memory:", clock=years)
    async with Engine(store, [token_kind()], works=False) as engine:
        tokens = Tokens(engine)
        old, late, valid = [(await tokens.issue(name, Role.VIEWER, [NS]))[1] for name in ("old", "late", "valid")]
        await tokens.revoke(old.id)
        years.pass_days(40)
        await tokens.revoke(late.id)
        await _prune_if_due(store, 30.0 * DAY, tokens.remove_ended)
        assert {one.id for one in await tokens.list()} == {late.id, valid.id}
        assert [one.event for one in await engine.history(SYSTEM, f"token-{old.id}")][-1] == "remove"


async def test_without_a_limit_nothing_is_ever_pruned(store: Store) -> None:
    await filled(store)
    async with prune_hourly(store, 0):
        # real time: nothing is pruned meanwhile, however long it takes
        await asyncio.sleep(0.05)
    assert await store.reader.operation(Key("acme", "x")) is not None


async def test_of_several_processes_one_prunes_each_hour(store: Store) -> None:
    await prune(store, 1.0)
    await filled(store)
    async with prune_hourly(store, 30):
        # real time: nothing is pruned meanwhile, however long it takes
        await asyncio.sleep(0.05)
    assert await store.reader.operation(Key("acme", "x")) is not None


async def test_a_server_with_a_limit_prunes_when_it_has_started(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "stateward.db")
    await store.open()
    await filled(store)
    await store.close()
    async with open_application(Config(data=str(tmp_path), history=30)) as parts:
        await until_gone(parts.engine.store)
