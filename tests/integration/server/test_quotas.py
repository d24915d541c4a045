"""Quotas are checked in the accepting transaction, so that concurrent requests cannot exceed them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from stateward.access.quotas import QuotaExceeded, QuotaGuard
from stateward.engine import Accepted, Engine, NotFound
from tests.integration.server.server_harness import NS, ServerHarness, open_server
from tests.stores import fresh_store


@pytest.fixture(params=["sqlite", "postgres"])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[ServerHarness]:
    new_store = fresh_store(request.param, request)
    async with open_server(new_store()) as opened:
        opened.new_store = new_store  # type: ignore[attr-defined]
        yield opened


async def test_no_more_objects_of_a_kind_are_made_than_the_quota_has(site: ServerHarness) -> None:
    await site.put(f"/quotas/{NS}", {"objects": {"ovc.vm": 2}})
    statuses = [
        (await site.post(f"/ns/{NS}/objects", {"id": f"vm-{number}", "kind": "ovc.vm"})).status_code
        for number in range(3)
    ]
    assert statuses == [202, 202, 403]
    refused = (await site.post(f"/ns/{NS}/objects", {"id": "vm-9", "kind": "ovc.vm"})).json()
    assert (refused["code"], refused["limit"], refused["retry"]) == ("quota", 2, False)
    assert (await site.post(f"/ns/{NS}/objects", {"id": "a-1", "kind": "ovc.account"})).status_code == 202
    assert (await site.post("/ns/bank/objects", {"id": "vm-9", "kind": "ovc.vm"})).status_code == 202


async def test_no_more_operations_are_under_way_than_the_quota_has(site: ServerHarness) -> None:
    for name in ("p1", "p2", "p3"):
        await site.built(name)
    await site.put(f"/quotas/{NS}", {"operations": 2})
    site.plant.hold()
    first = await site.post(f"/ns/{NS}/objects/p1/actions/pump")
    await site.post(f"/ns/{NS}/objects/p2/actions/pump")
    refused = await site.post(f"/ns/{NS}/objects/p3/actions/pump")
    assert (refused.status_code, refused.json()["code"], refused.json()["retry"]) == (403, "quota", True)
    forced = await site.post(f"/ns/{NS}/objects/p2/actions/scrap", {"facts": ["force"]})
    assert forced.status_code == 202
    site.plant.release()
    await site.ended(first)
    await site.ended(forced)
    assert (await site.post(f"/ns/{NS}/objects/p3/actions/pump")).status_code == 202


async def test_a_group_action_is_held_to_the_quota_too(site: ServerHarness) -> None:
    for name in ("p1", "p2", "p3"):
        await site.built(name)
    await site.put(f"/quotas/{NS}", {"operations": 2})
    site.plant.hold()
    told = (await site.post(f"/ns/{NS}/actions/pump", {"selector": {"kind": "test.pump"}})).json()
    assert len(told["begun"]) == 2
    assert [one["code"] for one in told["skipped"].values()] == ["quota"]


async def test_a_plan_tells_that_the_quota_would_refuse(site: ServerHarness) -> None:
    await site.built("p1")
    await site.put(f"/quotas/{NS}", {"operations": 0})
    told = (await site.post(f"/ns/{NS}/plan", {"requests": [{"object": "p1", "action": "pump"}]})).json()
    assert told[0]["problem"]["code"] == "quota"


async def test_of_many_who_create_at_once_in_two_processes_only_so_many_win(site: ServerHarness) -> None:
    await site.put(f"/quotas/{NS}", {"objects": {"ovc.vm": 5}})
    kinds = list(site.engine.kinds)
    async with Engine(site.new_store(), kinds, admission=QuotaGuard(), works=False) as other:  # type: ignore[attr-defined]
        calls = [
            engine.create(NS, f"vm-{number}-{which}", "ovc.vm", "define")
            for number in range(25)
            for which, engine in enumerate((site.engine, other))
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(one, Accepted) for one in answers) == 5
    assert sum(isinstance(one, QuotaExceeded) for one in answers) == 45


async def test_what_the_clock_does_is_never_refused(site: ServerHarness) -> None:
    await site.built("p1")
    await site.put(f"/quotas/{NS}", {"operations": 0})
    assert (await site.engine.act(NS, "p1", "pump", actor="clock")).operation is not None


async def test_a_removed_object_makes_room(site: ServerHarness) -> None:
    await site.put(f"/quotas/{NS}", {"objects": {"test.pump": 1}})
    await site.built("p1")
    for action in ("scrap", "forget"):
        await site.post(f"/ns/{NS}/objects/p1/actions/{action}?wait=30")
    with pytest.raises(NotFound):
        await site.engine.record(NS, "p1")
    await site.built("p2")


async def test_namespaces_are_found_without_walking_the_journal(site: ServerHarness) -> None:
    for ns in ("a", "b", "c"):
        await site.built("p1", ns)
    assert await site.engine.store.reader.namespaces() == ["(system)", "a", "b", "c"]
