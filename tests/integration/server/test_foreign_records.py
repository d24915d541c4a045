"""A server on a database with records of a kind that it does not know: it shows them, hides their values, forgets them.

Every test runs on both stores.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stateward.engine import Engine
from stateward.server.live.journal_feed import Interest
from stateward.server.telemetry.snapshot import SnapshotReader
from stateward.store.records import Timer
from tests.integration.engine.pump_kinds import PUMP
from tests.integration.engine.version_kinds import LATER, OLD, later_kind, nothing, old_kind
from tests.integration.server.server_harness import NS, ServerHarness, open_server
from tests.stores import fresh_store

AT = f"/ns/{NS}/objects/p1"
SECRET = "hunter2"


@pytest.fixture(params=["sqlite", "postgres"])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[ServerHarness]:
    """Give a server that does not know pumps, on a database with a pump that is to be built."""
    new_store = fresh_store(str(request.param), request)
    async with open_server(new_store(), works=False) as whole:
        body = {"id": "p1", "kind": PUMP.kind, "spec": {"password": SECRET}, "args": {"key": SECRET}}
        answer = await whole.post(f"/ns/{NS}/objects", body | {"labels": {"tier": "web"}})
        assert answer.status_code == 202, answer.text
        await whole.engine.set_timer(Timer(NS, "t1", 9e9, 0, "p1", "pump", "[]", f'{{"key":"{SECRET}"}}'))
    async with open_server(new_store(), without=[PUMP.kind]) as found:
        yield found


async def test_it_is_found_listed_and_counted(site: ServerHarness) -> None:
    for who in ("admin", "viewer"):
        (item,) = (await site.get(f"/ns/{NS}/objects?kind={PUMP.kind}&state=building", who)).json()["items"]
        assert (item["state"], item["state_class"], item["labels"]) == ("building", None, {"tier": "web"})
        assert (await site.get(AT, who)).json() == item
        assert [one["event"] for one in (await site.get(f"{AT}/history", who)).json()["items"]] == ["build"]
        assert (await site.get("/namespaces", who)).json()[0]["counts"][PUMP.kind] == {"building": 1}
        metrics = (await site.caller(who).get("http://test/metrics")).text
        assert f'kind="{PUMP.kind}",state="building"' in metrics
    interest = Interest(frozenset({"*"}))
    assert (await SnapshotReader(site.engine.store).count_states(interest)).objects[NS][PUMP.kind] == {"building": 1}


async def test_its_values_are_shown_to_nobody_and_their_names_to_administrators(site: ServerHarness) -> None:
    paths = [AT, f"/ns/{NS}/objects", f"{AT}/history", "/journal", f"{AT}/why", f"{AT}/queue", f"/ns/{NS}/timers"]
    paths += [f"/ns/{NS}/operations?object=p1", "/stuck"]
    for who in ("admin", "viewer", "operator"):
        for path in paths:
            answer = await site.get(path, who)
            assert answer.status_code == 200, answer.text
            assert SECRET not in answer.text
    assert (await site.get(AT)).json()["spec"] == {"password": "***"}
    assert (await site.get(AT, "viewer")).json()["spec"] == {}
    (operation,) = (await site.get(f"/ns/{NS}/operations?object=p1")).json()["items"]
    assert (operation["args"], operation["status"]) == ({"key": "***"}, "waiting")
    assert (await site.get(f"/ns/{NS}/operations?object=p1", "operator")).json()["items"] == []


async def test_why_says_that_no_worker_knows_the_kind(site: ServerHarness) -> None:
    why = (await site.get(f"{AT}/why")).json()
    assert (why["reason"], why["text"]) == ("no worker", "build: no worker knows the kind test.pump")
    told = (await site.get(f"{AT}/why", "operator")).json()["text"]
    assert told == "no worker knows the kind test.pump; only administrators see its operations"
    (worker,) = (await site.get("/workers")).json()
    assert "test.station" in worker["kinds"]
    assert "test.pump" not in worker["kinds"]


async def test_what_needs_its_table_is_refused_with_the_kind(site: ServerHarness) -> None:
    (operation,) = (await site.get(f"/ns/{NS}/operations?object=p1")).json()["items"]
    answers: dict[str, Any] = {
        "act": await site.post(f"{AT}/actions/pump", headers={"Idempotency-Key": "k1"}),
        "again": await site.post(f"{AT}/actions/pump", headers={"Idempotency-Key": "k1"}),
        "labels": await site.put(f"{AT}/labels", {"labels": {"a": "b"}}, headers={"If-Match": "*"}),
        "cancel": await site.post(f"/ns/{NS}/operations/{operation['id']}/cancel"),
    }
    for name, answer in answers.items():
        assert (answer.status_code, answer.json()["code"]) == (409, "unknown_kind"), (name, answer.text)
        assert "does not know the kind test.pump" in answer.json()["detail"]
    (planned,) = (await site.post(f"/ns/{NS}/plan", {"requests": [{"object": "p1", "action": "pump"}]})).json()
    assert planned["problem"]["code"] == "unknown_kind"
    assert (await site.get(f"{AT}/allowed")).json() == {"state": "building", "state_class": None, "actions": []}
    assert (await site.post("/heal")).status_code == 200
    assert (await site.get(AT)).json()["state"] == "building"


async def test_an_administrator_forgets_it_by_its_kind(site: ServerHarness) -> None:
    for who, kind, status in (("operator", PUMP.kind, 403), ("local admin", PUMP.kind, 403), ("admin", "pump", 400)):
        assert (await site.post(f"{AT}/forget", {"kind": kind}, who)).status_code == status
    known = await site.post(f"{AT}/forget", {"kind": "test.station"})
    assert (known.status_code, known.json()["code"]) == (409, "kind_known")
    assert (await site.get(AT)).status_code == 200
    gone = await site.post(f"{AT}/forget", {"kind": PUMP.kind})
    assert (gone.status_code, gone.json()["state"]) == (200, "(gone)")
    assert (await site.get(AT)).status_code == 404
    last = (await site.get(f"{AT}/history")).json()["items"][-1]
    assert (last["event"], last["who"], last["target"]) == ("forgotten", "ada", "(gone)")
    assert (await site.get(f"/ns/{NS}/timers")).json() == []
    assert (await site.post(f"{AT}/forget", {"kind": PUMP.kind})).status_code == 404


async def test_it_is_not_forgotten_while_its_namespace_is_protected(site: ServerHarness) -> None:
    await site.put(f"/ns/{NS}/protection", {"protected": True, "reason": "freeze"})
    refused = await site.post(f"{AT}/forget", {"kind": PUMP.kind})
    assert (refused.status_code, refused.json()["code"]) == (409, "protected")
    assert (await site.get(AT)).status_code == 200


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
async def test_a_server_shows_records_of_a_later_version_of_a_kind_and_why_says_that_no_worker_knows_it(
    name: str, request: pytest.FixtureRequest
) -> None:
    new_store = fresh_store(name, request)
    async with (
        open_server(new_store(), also=[old_kind(nothing)]) as old,
        Engine(new_store(), [later_kind(nothing)], works=False) as later,
    ):
        for one in ("signed", "at-rest"):
            made = await old.engine.create(NS, one, OLD.kind, spec={"ip": "192.0.2.1"})
            await old.engine.wait(NS, made.op.id, 30)
            await later.act(NS, one, "sign")
        await later.act(NS, "signed", "touch")
        await later.create(NS, "new", LATER.kind, spec={"address": "192.0.2.1"})
        paths = ("", "/history", "/why", "/queue", "/allowed", "/actions/touch/preview")
        for path in (f"/ns/{NS}/objects/{one}{path}" for one in ("signed", "new") for path in paths):
            answer = await old.get(path)
            assert answer.status_code in (200, 404, 405), (path, answer.text)
        for one, what in (
            ("signed", "the state signed of dns.record"),
            ("new", "version 2 of the specs of dns.record"),
        ):
            why: dict[str, Any] = {}
            async with asyncio.timeout(30):  # the worker reports what it does not know with its next heartbeat
                while why.get("reason") != "no worker":
                    why = (await old.get(f"/ns/{NS}/objects/{one}/why")).json()
                    await asyncio.sleep(0.05)
            assert why["text"].endswith(f": no worker knows {what}")
        refused = await old.post(f"/ns/{NS}/objects/new/actions/delete")
        assert (refused.status_code, refused.json()["code"]) == (409, "unknown_version")
        (worker,) = (await old.get("/workers")).json()
        assert all(" " not in kind for kind in worker["kinds"])
