"""The deployment as a whole, on both stores: limits, workers, timers, what is stuck and healing it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.engine import Route
from stateward.engine.finish.claim_reports import ClaimReport, Ending
from stateward.engine.finish.completion import record_claim_reports
from stateward.engine.transitions import time_text
from stateward.engine.worker.claims import claim
from stateward.store.changes import Changes
from stateward.store.port import Tx
from stateward.store.records import Key, Timer, WorkerRecord
from tests.integration.server.server_harness import NS, ServerHarness, open_server
from tests.stores import fresh_store
from tests.waiting import until


@pytest.fixture(params=["sqlite", "postgres"])
async def idle_site(request: pytest.FixtureRequest) -> AsyncIterator[ServerHarness]:
    """Give a test a harness in which nobody works."""
    async with open_server(fresh_store(request.param, request)(), works=False) as opened:
        yield opened


async def test_a_lane_is_limited_from_now_on(site: ServerHarness) -> None:
    set_ = await site.put("/lanes/aws/eu-west-1", {"grp": "aws", "capacity": 7})
    assert (set_.status_code, set_.json()["lane"], set_.json()["capacity"]) == (200, "aws/eu-west-1", 7)
    assert (await site.put("/groups/aws", {"lanes": 2})).json() == {"grp": "aws", "lanes": 2}
    told = (await site.get("/lanes")).json()
    assert {"grp": "aws", "lanes": 2} in told["groups"]
    assert [(one["lane"], one["capacity"]) for one in told["lanes"] if one["grp"] == "aws"] == [("aws/eu-west-1", 7)]


async def test_workers_are_shown_with_whether_they_live(site: ServerHarness) -> None:
    workers = (await site.get("/workers")).json()
    assert site.engine.worker is not None
    assert [(one["id"], one["alive"]) for one in workers] == [(site.engine.worker.name, True)]


async def test_timers_are_shown_in_the_order_in_which_they_fall_due(site: ServerHarness) -> None:
    await site.built("p1")
    now = await site.engine.store.reader.time()
    for name, due in (("later", now + 2000), ("sooner", now + 1000)):
        await site.engine.set_timer(Timer(NS, name, due, 0, "p1", "pump", '["force"]', '{"litres":1}'))
    timers = (await site.get(f"/ns/{NS}/timers")).json()
    assert [(one["id"], one["event"], one["facts"]) for one in timers] == [
        ("sooner", "pump", ["force"]),
        ("later", "pump", ["force"]),
    ]
    assert (await site.get("/ns/bank/timers")).json() == []


async def test_labels_are_changed_in_the_store(site: ServerHarness) -> None:
    await site.built("p1", labels={"a": "1"})
    changed = await site.put(f"/ns/{NS}/objects/p1/labels", {"labels": {"b": "2"}})
    assert changed.status_code == 200
    assert (await site.get(f"/ns/{NS}/objects?label=b=2")).json()["items"] == [changed.json()]
    assert (await site.get(f"/ns/{NS}/objects?label=b=1")).json()["items"] == []
    unknown = await site.get(f"/ns/{NS}/objects?label=a=1")
    assert (unknown.status_code, unknown.json()["known"]) == (400, ["b"])


async def test_what_a_dead_worker_holds_is_stuck_until_it_is_healed(idle_site: ServerHarness) -> None:
    store = idle_site.engine.store
    await idle_site.post(f"/ns/{NS}/objects", {"id": "p1", "kind": "test.pump"})
    dead = WorkerRecord("gone/1", -1.0, 0.0, "host", 1)
    await store.transact(lambda tx: tx.heartbeat(dead))
    await store.transact(lambda tx: claim(tx, idle_site.engine.kinds, dead, 10))
    stuck = (await idle_site.get("/stuck")).json()
    assert [(one["ns"], one["object"], one["action"], one["owner"]) for one in stuck] == [(NS, "p1", "build", "gone/1")]
    assert stuck[0]["why"] == "its worker is dead"
    assert (await idle_site.get("/stuck", "outsider")).json() == []
    healed = await idle_site.post("/heal")
    assert (healed.status_code, healed.json()["freed"]) == (200, 1)
    assert (await idle_site.get("/stuck")).json() == []
    assert (await idle_site.get("/workers")).json() == []


async def test_why_says_that_a_worker_is_dead_wherever_stuck_does(idle_site: ServerHarness) -> None:
    store = idle_site.engine.store
    await idle_site.post(f"/ns/{NS}/objects", {"id": "s1", "kind": "test.station"})
    await idle_site.post(f"/ns/{NS}/objects", {"id": "p1", "kind": "test.pump", "parent": "s1"})
    alive = WorkerRecord("alive/1", 3600.0, 0.0, "host", 1)
    await store.transact(lambda tx: tx.heartbeat(alive))
    (building,) = (await store.transact(lambda tx: claim(tx, idle_site.engine.kinds, alive, 10))).claims
    await store.transact(
        lambda tx: record_claim_reports(
            tx, idle_site.engine.kinds, [ClaimReport(building.operation, "alive/1", 1, Ending())]
        )
    )
    body = {"selector": {"parent": "s1"}, "whole": {"object": "s1", "action": "pump"}}
    assert (await idle_site.post(f"/ns/{NS}/actions/pump", body)).status_code == 202
    await store.transact(lambda tx: claim(tx, idle_site.engine.kinds, alive, 10))
    part = (await idle_site.get(f"/ns/{NS}/objects/p1/why")).json()
    assert part["reason"] == "running"
    assert part["text"].startswith("pump: worker alive/1 has worked on it since ")
    whole = (await idle_site.get(f"/ns/{NS}/objects/s1/why")).json()
    assert whole["text"] == "pump: it waits for 1 child"
    assert [part["operation"]["status"]] == [one["status"] for one in whole["children"]] == ["running"]
    await store.transact(lambda tx: tx.heartbeat(replace(alive, lease=-1.0)))
    (seen,) = [time_text(one.seen) for one in await store.reader.workers()]
    assert [one["object"] for one in (await idle_site.get("/stuck")).json()] == ["p1"]
    part = (await idle_site.get(f"/ns/{NS}/objects/p1/why")).json()
    silent = f"has been silent since {seen} (lease -1 s)"
    assert part["reason"] == "its worker is dead"
    assert part["text"] == f"pump: its worker alive/1 {silent}; no worker is alive to take it over"
    whole = (await idle_site.get(f"/ns/{NS}/objects/s1/why")).json()
    assert whole["text"].endswith(f"; worker alive/1, which holds 1 of them, {silent}")


async def test_the_metric_the_route_and_the_engine_agree_on_what_is_stuck(idle_site: ServerHarness) -> None:
    store = idle_site.engine.store
    for name in ("late", "late of a live worker", "orphan", "in time"):
        await idle_site.engine.create(NS, name, "test.pump", "build")
    changes: dict[str, dict[str, Any]] = {
        "late": {"deadline": 1.0},
        "late of a live worker": {"deadline": 2.0, "owner": "alive/1"},
        "orphan": {"owner": "gone/1"},
        "in time": {"owner": "alive/1"},
    }

    async def change(tx: Tx) -> None:
        await tx.heartbeat(WorkerRecord("gone/1", -1.0, 0.0, "host", 1))
        await tx.heartbeat(WorkerRecord("alive/1", 3600.0, 0.0, "host", 2))
        work = [work for name in changes for work in await tx.queues([Key(NS, name)])]
        await tx.apply(Changes(work=[replace(one, **changes[one.object]) for one in work]))

    await store.transact(change)
    listed = [one["object"] for one in (await idle_site.get("/stuck")).json()]
    assert listed == ["late", "late of a live worker", "orphan"]
    assert [one.object for one in await idle_site.engine.stuck()] == listed
    async with idle_site.client({"Authorization": f"Bearer {idle_site.texts['admin']}"}) as client:
        shown = (await client.get("http://test/metrics")).text
    assert "stateward_stuck_objects 3.0" in shown
    assert [one["object"] for one in (await idle_site.get("/stuck?limit=1", "viewer")).json()] == ["late"]


async def test_without_a_worker_an_object_waits_for_one(idle_site: ServerHarness) -> None:
    await idle_site.post(f"/ns/{NS}/objects", {"id": "p1", "kind": "test.pump"})
    why = (await idle_site.get(f"/ns/{NS}/objects/p1/why")).json()
    assert (why["reason"], why["text"]) == ("no worker", "build: no worker is alive")
    assert (why["lane"]["lane"], why["operation"]["action"]) == ("", "build")


async def test_a_full_lane_is_what_an_object_waits_for(site: ServerHarness) -> None:
    for name in ("p1", "p2"):
        site.plant.lanes[name] = Route("aws", "aws/eu")
    await site.put("/lanes/aws/eu", {"grp": "aws", "capacity": 1})
    site.plant.hold()
    for name in ("p1", "p2"):
        await site.post(f"/ns/{NS}/objects", {"id": name, "kind": "test.pump"})
    await until(lambda: site.plant.begun["build"] == 1)
    reasons = [(await site.get(f"/ns/{NS}/objects/{name}/why")).json()["reason"] for name in ("p1", "p2")]
    assert sorted(reasons) == ["lane full", "running"]


async def test_the_server_is_alive_and_ready(site: ServerHarness) -> None:
    async with site.client({}) as client:
        assert (await client.get("http://test/healthz")).json() == {"status": "ok"}
        ready = await client.get("http://test/readyz")
    assert (ready.status_code, ready.json()) == (200, {"store": "ok", "worker": "ok"})


async def test_a_server_without_a_worker_is_ready_too(idle_site: ServerHarness) -> None:
    async with idle_site.client({}) as client:
        assert (await client.get("http://test/readyz")).json() == {"store": "ok", "worker": "none here"}


async def test_a_server_whose_worker_is_dead_is_not_ready(site: ServerHarness) -> None:
    assert site.engine.worker is not None
    name = site.engine.worker.name
    await site.engine.store.transact(lambda tx: tx.remove_worker(name))
    async with site.client({}) as client:
        answer = await client.get("http://test/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert answer.headers["retry-after"] == "1"


async def test_a_server_whose_store_is_closed_is_alive_and_not_ready(site: ServerHarness) -> None:
    await site.engine.store.close()
    async with site.client({}) as client:
        assert (await client.get("http://test/healthz")).status_code == 200
        answer = await client.get("http://test/readyz")
    await site.engine.store.open()
    assert answer.status_code == 503
