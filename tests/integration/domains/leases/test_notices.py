"""Notices to the policy service: of every end and every delete, until it accepts them, in the form of Blazar."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from stateward.domains.leases import notices
from stateward.domains.leases.lifecycle import NOTICE
from stateward.domains.leases.notices import notice_key, pause_after
from stateward.domains.leases.settings import Settings
from stateward.engine import NotFound
from stateward.store.filters import Page, Selector
from tests.integration.domains.leases.conftest import ME, NS, LeaseHarness, Opening, hosts, thing
from tests.integration.domains.leases.policy_service import running_policy_service, was_notified
from tests.integration.server.server_processes import Served
from tests.waiting import until


async def notices_of(site: LeaseHarness) -> dict[str, str]:
    """Return the notices that are still there, with their states."""
    found = await site.engine.store.reader.list_objects(Selector(NS, kind=NOTICE.kind), Page())
    return {one.id: one.state for one in found}


async def _no_notices(site: LeaseHarness) -> bool:
    return await notices_of(site) == {}


@pytest.mark.parametrize("start", [0.0, 3600.0])
async def test_the_service_is_told_of_a_delete_once(opening: Opening, start: float) -> None:
    async with running_policy_service() as (policies, url), opening(Settings(check_url=url)) as site:
        lease = await site.lease("short", thing("lamp"), start=start, end=7200)
        if not start:
            await site.until(lease, "ACTIVE")
        await site.plugin.leases.await_delete(await site.plugin.leases.delete(ME, lease.object.id))
        await until(lambda: was_notified(policies, 1))
        await until(lambda: _no_notices(site))
        assert policies.asked[-1][1]["lease"]["status"] == "DELETING"


async def test_a_delete_after_the_end_is_not_told_again(opening: Opening) -> None:
    async with running_policy_service() as (policies, url), opening(Settings(check_url=url)) as site:
        lease = await site.lease("ended", thing("lamp"), end=0.3)
        await site.until(lease, "TERMINATED")
        await until(lambda: _no_notices(site))
        await site.plugin.leases.await_delete(await site.plugin.leases.delete(ME, lease.object.id))
        assert await _no_notices(site)
        assert await was_notified(policies, 1)


async def test_an_end_that_is_tried_again_is_told_once(opening: Opening) -> None:
    async with running_policy_service() as (policies, url), opening(Settings(check_url=url)) as site:
        site.things.fail["end of lamp"] = [RuntimeError("broken")]
        lease = await site.lease("twice", thing("lamp"), end=0.3)
        await site.until(lease, "ERROR")
        await site.plugin.leases.await_delete(await site.plugin.leases.delete(ME, lease.object.id))
        await until(lambda: _no_notices(site))
        assert await was_notified(policies, 1)


async def test_without_a_service_nothing_is_queued(site: LeaseHarness) -> None:
    lease = await site.lease("quiet", thing("lamp"), start=3600, end=7200)
    await site.plugin.leases.await_delete(await site.plugin.leases.delete(ME, lease.object.id))
    assert await _no_notices(site)


async def test_what_the_service_does_not_take_is_delivered_again(opening: Opening) -> None:
    async with running_policy_service() as (policies, url), opening(Settings(check_url=url)) as site:
        policies.broken = 2
        lease = await site.lease("again", thing("lamp"), start=3600, end=7200)
        await site.plugin.leases.await_delete(await site.plugin.leases.delete(ME, lease.object.id))
        await until(lambda: was_notified(policies, 3))
        await until(lambda: _no_notices(site))
        bodies = [body for path, body in policies.asked if path == "/on-end"]
        assert bodies[0] == bodies[1] == bodies[2]


async def test_what_was_not_delivered_outlives_the_process(opening: Opening) -> None:
    async with running_policy_service() as (policies, url):
        policies.broken = 10_000
        async with opening(Settings(check_url=url)) as site:
            lease = await site.lease("durable", thing("lamp"), start=3600, end=7200)
            await site.plugin.leases.await_delete(await site.plugin.leases.delete(ME, lease.object.id))
            await until(lambda: was_notified(policies, 1))
        policies.broken = 0
        async with opening(Settings(check_url=url)) as site:
            await until(lambda: _no_notices(site))
        assert policies.asked[-1][1]["lease"]["id"] == lease.object.id


def test_the_pauses_grow_up_to_an_hour() -> None:
    pauses = [pause_after(attempt) for attempt in range(1, 40)]
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 3600.0


async def test_a_notice_that_is_given_up_stays_and_can_be_delivered_later(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "FIRST_PAUSE_S", 90_000.0)
    monkeypatch.setattr(notices, "LONGEST_PAUSE_S", 90_000.0)  # the next attempt would be after the bound of a day
    async with running_policy_service() as (policies, url), opening(Settings(check_url=url)) as site:
        policies.broken = 1
        lease = await site.lease("stubborn", thing("lamp"), start=3600, end=7200)
        await site.plugin.leases.await_delete(await site.plugin.leases.delete(ME, lease.object.id))
        key = notice_key(NS, lease.object.id)
        await until(lambda: _is(site, key.id, "undelivered"))
        assert "the answer to on-end was 500" in str((await site.engine.record(*key)).error)
        await site.engine.wait_record(NS, (await site.engine.act(*key, "deliver", who="me")).op.id, 30)
        assert await was_notified(policies, 2)
        with pytest.raises(NotFound):
            await site.engine.record(*key)


async def _is(site: LeaseHarness, name: str, state: str) -> bool:
    return (await notices_of(site)).get(name) == state


async def test_what_is_asked_and_told_has_the_form_of_blazar(opening: Opening) -> None:
    async with (
        running_policy_service() as (policies, url),
        opening(Settings(before_end=0.0, check_url=f"{url}/v1/", check_token="of the service")) as site,
    ):
        await site.hosts("h1", "h2", gpu="a100")
        lease = await site.lease("form", hosts(), start=3600, end=7200)
        asked, body = policies.asked[-1]
        assert asked == "/v1/check-create"
        assert "x-auth-token: of the service" in policies.head.lower()
        assert body.keys() == {"context", "lease"}
        context = {"user_id": "me", "project_id": NS, "auth_url": None, "region_name": None}
        assert body["context"] == context
        (reservation,) = body["lease"]["reservations"]
        assert [reservation[name] for name in ("resource_type", "min", "max")] == ["physical:host", 1, 1]
        assert [(one["hypervisor_hostname"], one["gpu"]) for one in reservation["allocations"]] == [("h1", "a100")]
        assert (body["lease"]["user_id"], body["lease"]["project_id"]) == ("me", NS)

        await site.plugin.leases.update(
            ME, lease.object.id, {"end_date": "2035-01-01 12:00", "reservations": [change(lease, max=2)]}
        )
        asked, body = policies.asked[-1]
        assert asked == "/v1/check-update"
        assert body.keys() == {"context", "lease", "current_lease"}
        assert body["context"] == context
        assert body["lease"]["end_date"] == "2035-01-01T12:00:00"
        assert [allocated(body[name]) for name in ("current_lease", "lease")] == [["h1"], ["h1", "h2"]]
        assert body["current_lease"]["id"] == lease.object.id

        await site.plugin.leases.await_delete(await site.plugin.leases.delete(ME, lease.object.id))
        await until(lambda: _no_notices(site))
        asked, body = policies.asked[-1]
        assert asked == "/v1/on-end"
        assert body.keys() == {"context", "lease"}
        assert body["context"] == context
        assert body["lease"]["end_date"] == "2035-01-01T12:00:00"
        assert allocated(body["lease"]) == ["h1", "h2"]
        assert {one["event_type"] for one in body["lease"]["events"]} == {"start_lease", "end_lease"}


def change(lease: Any, **how: Any) -> dict[str, Any]:
    return {"id": lease.spec.reservations[0].id, **how}


def allocated(lease: dict[str, Any]) -> list[str]:
    return [one["id"] for reservation in lease["reservations"] for one in reservation["allocations"]]


async def test_what_the_service_denies_leaves_no_host_marked(opening: Opening) -> None:
    async with running_policy_service() as (policies, url), opening(Settings(check_url=url)) as site:
        await site.hosts("h1")
        policies.silent = False
        policies.says = b"HTTP/1.1 403 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        for _ in range(2):
            with pytest.raises(Exception, match="403"):
                await site.lease("denied", start=60)
        policies.says = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"
        assert (await site.lease("allowed", start=60)).seen.booked == {"h1"}


async def test_a_notice_survives_a_kill(tmp_path: Path) -> None:
    async with running_policy_service() as (policies, url):
        policies.broken = 10_000
        flags = ("--set", f"leases_check_url={url}", "--lease", "2")
        server = await asyncio.to_thread(Served, tmp_path / "data", *flags)
        try:
            id_ = await asyncio.to_thread(_made_and_deleted, server)
            await until(lambda: any(path == "/on-end" for path, _ in policies.asked))
            server.stop(signal.SIGKILL)
            policies.broken, policies.asked = 0, []
            server = await asyncio.to_thread(Served, tmp_path / "data", *flags)
            await until(lambda: bool(policies.asked))
        finally:
            server.process.kill()
            server.ended()
        assert [(path, body["lease"]["id"]) for path, body in policies.asked] == [("/on-end", id_)]


def _made_and_deleted(server: Served) -> str:
    with server.client() as client:
        lease = {"name": "n", "start_date": "2050-01-01 00:00", "end_date": "2050-01-02 00:00"}
        id_ = str(client.post("/blazar/v1/leases", json=lease).json()["lease"]["id"])
        assert client.delete(f"/blazar/v1/leases/{id_}").status_code == 204
        return id_
