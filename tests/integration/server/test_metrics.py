from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stateward.access import Role
from stateward.server.telemetry import prometheus_metrics
from stateward.store.errors import Unavailable
from stateward.store.records import Lane, LaneGroup
from tests.integration.server.live_server import PATIENT, LiveServer
from tests.waiting import until

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def text(live_server: LiveServer, token: str | None = None) -> str:
    """Scrape as Prometheus does, and look anew."""
    live_server.live_feeds.metrics._surveyed = -10.0
    async with live_server.client(token) as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return answer.text


async def scraped(live_server: LiveServer) -> Samples:
    await seen(live_server)
    families = text_string_to_metric_families(await text(live_server))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def at(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((f"stateward_{name}", tuple(sorted(labels.items()))))


async def seen(live_server: LiveServer) -> None:
    """Wait until the feed has read what was written."""
    last = await live_server.engine.store.reader.last_journal_seq()
    await until(lambda: live_server.live_feeds.feed.seq >= last)


async def made(live_server: LiveServer, *names: str, ns: str = "a", **how: Any) -> None:
    for name in names:
        accepted = await live_server.engine.create(ns, name, "mci.vm", **how)
        await live_server.engine.wait_record(ns, accepted.op.id, PATIENT)


async def test_transitions_are_counted_by_kind_action_and_result(live_server: LiveServer) -> None:
    await made(live_server, "one", "two")
    samples = await scraped(live_server)
    for result in ("accepted", "succeeded"):
        assert at(samples, "transitions_total", kind="mci.vm", action="create", result=result) == 2


async def test_objects_are_counted_by_kind_and_state_over_all_namespaces(live_server: LiveServer) -> None:
    await made(live_server, "one")
    await made(live_server, "two", ns="b")
    assert at(await scraped(live_server), "objects", kind="mci.vm", state="Running") == 2


async def test_a_state_that_nothing_is_in_any_more_disappears(live_server: LiveServer) -> None:
    live_server.hold()
    accepted = await live_server.engine.create("a", "one", "mci.vm")
    assert at(await scraped(live_server), "objects", kind="mci.vm", state="Creating") == 1
    live_server.release()
    await live_server.engine.wait_record("a", accepted.op.id, PATIENT)
    assert at(await scraped(live_server), "objects", kind="mci.vm", state="Creating") is None


async def test_lanes_tell_what_runs_in_them_and_what_may(live_server: LiveServer) -> None:
    await live_server.engine.set_limits([LaneGroup("aws", 3)], [Lane("aws/eu", "aws", 7, 0.0, 0.0, 0)])
    live_server.hold()
    for name in ("one", "two"):
        await live_server.engine.create("a", name, "mci.vm", spec={"provider": "aws", "region": "eu"})
    worker = live_server.engine.worker
    assert worker is not None
    await until(lambda: worker.busy == 2)
    samples = await scraped(live_server)
    assert at(samples, "operations_in_flight", lane="aws/eu", status="running") == 2
    assert at(samples, "lane_capacity", lane="aws/eu") == 7
    assert at(samples, "lane_backed_off", lane="aws/eu") == 0


async def test_lanes_tell_how_much_waits_in_them_and_how_old_the_oldest_is(live_server: LiveServer) -> None:
    await live_server.engine.set_limits([LaneGroup("aws", 3)], [Lane("aws/eu", "aws", 2, 0.0, 0.0, 0)])
    live_server.hold()
    for number in range(5):
        await live_server.engine.create("a", f"vm-{number}", "mci.vm", spec={"provider": "aws", "region": "eu"})
    worker = live_server.engine.worker
    assert worker is not None
    await until(lambda: worker.busy == 2)
    samples = await scraped(live_server)
    assert at(samples, "queue_depth", lane="aws/eu") == 3
    assert at(samples, "operations_in_flight", lane="aws/eu", status="waiting") == 3
    assert at(samples, "operations_in_flight", lane="aws/eu", status="running") == 2
    age = at(samples, "operation_oldest_seconds", lane="aws/eu")
    assert age is not None
    assert age > 0


async def test_workers_and_the_store_are_shown(live_server: LiveServer) -> None:
    samples = await scraped(live_server)
    assert (at(samples, "workers", alive="yes"), at(samples, "workers", alive="no")) == (1, 0)
    assert at(samples, "store_up") == 1
    assert at(samples, "stuck_objects") == 0


async def test_calls_are_counted_by_route_and_never_by_name(live_server: LiveServer) -> None:
    await live_server.define("a", "secretive")
    async with live_server.client() as client:
        await client.get("/api/v1/ns/a/objects/secretive")
        await client.get("/api/v1/ns/a/objects/nobody")
        await client.get("/nowhere/at/all")
    samples = await scraped(live_server)
    calls = [dict(labels) for name, labels in samples if name == "stateward_http_requests_total"]
    found = [one["status"] for one in calls if one["route"].startswith("/api/v1/ns/{ns}/objects/{")]
    assert sorted(found) == ["200", "404"]
    assert [one["status"] for one in calls if one["route"] == "(none)"] == ["404"]
    assert "secretive" not in str(calls)


async def test_a_made_up_method_makes_no_new_label(live_server: LiveServer) -> None:
    async with live_server.client() as client:
        await client.request("BREW", "/healthz")
    methods = {dict(labels).get("method") for _, labels in await scraped(live_server)}
    assert "BREW" not in methods


async def test_open_streams_are_counted(live_server: LiveServer) -> None:
    async with live_server.stream() as stream:
        await stream.send("{}")
        await stream.recv()
        assert at(await scraped(live_server), "stream_readers") == 1


async def test_a_scrape_within_a_second_asks_the_store_nothing(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus_metrics, "monotonic", lambda: 1000.0)
    await text(live_server)
    asked = list[object]()
    live_server.live_feeds.metrics._survey = asked.append  # type: ignore[assignment]
    async with live_server.client() as client:
        assert (await client.get("/metrics")).status_code == 200
    assert asked == []


async def test_a_store_that_is_down_is_shown_as_down_and_nothing_stale_beside_it(live_server: LiveServer) -> None:
    await made(live_server, "one")
    assert at(await scraped(live_server), "objects", kind="mci.vm", state="Running") == 1

    async def gone() -> Any:
        raise Unavailable("gone")

    live_server.live_feeds.metrics._survey = gone
    samples = await scraped(live_server)
    assert at(samples, "store_up") == 0
    assert at(samples, "objects", kind="mci.vm", state="Running") is None


async def test_no_token_and_no_name_of_an_object_is_in_the_metrics(live_server: LiveServer) -> None:
    token = await live_server.token("a", role=Role.VIEWER)
    async with live_server.client(token) as client:
        for path in (f"/api/v1/ns/a/objects/{token}", f"/api/v1/{token}", f"/{token}"):
            await client.get(path)
    told = await text(live_server)
    assert token not in told
    assert token.split("_", 2)[2] not in told


async def test_whoever_may_not_read_gets_no_metrics(live_server: LiveServer) -> None:
    async with live_server.client("sw_0123456789ab_nothing") as client:
        assert (await client.get("/metrics")).status_code == 401
    async with live_server.client(await live_server.token("a:*", role=Role.AGENT)) as client:
        assert (await client.get("/metrics")).status_code == 403
    assert "stateward_build_info" in await text(live_server, await live_server.token("a", role=Role.VIEWER))


async def test_a_token_for_some_namespaces_sees_the_counts_of_those_alone(live_server: LiveServer) -> None:
    await made(live_server, "one")
    await made(live_server, "two", "three", ns="b")
    live_server.hold()
    await live_server.engine.create("b", "four", "mci.vm", spec={"provider": "aws", "region": "theirs"})
    await seen(live_server)
    mine = await text(live_server, await live_server.token("a", role=Role.VIEWER))
    assert 'stateward_objects{kind="mci.vm",state="Running"} 1.0' in mine
    assert "Creating" not in mine
    assert "theirs" not in mine, "nobody sees the lanes in which others work"
    for whole in ("access.token", "workers", "transitions", "http_requests", "provider_calls", "journal_seq", "timer"):
        assert whole not in mine
    both = await text(live_server, await live_server.token("a", "b", role=Role.VIEWER))
    assert 'stateward_objects{kind="mci.vm",state="Running"} 3.0' in both
    assert 'stateward_operations_in_flight{lane="aws/theirs"' in both
    everything = await text(live_server, await live_server.token("*", role=Role.VIEWER))
    assert 'kind="access.token"' in everything
    assert "stateward_transitions_total" in everything


async def test_a_store_that_is_down_is_shown_as_down_to_a_token_for_some_namespaces_too(
    live_server: LiveServer,
) -> None:
    async def gone(_: object = None) -> Any:
        raise Unavailable("gone")

    live_server.live_feeds.metrics._survey = gone
    assert "stateward_store_up 0.0" in await text(live_server, await live_server.token("a", role=Role.VIEWER))
