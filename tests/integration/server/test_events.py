import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import httpx
import msgspec
import pytest

from stateward.access import Role
from stateward.server.live import feeds
from tests.integration.server.live_server import PATIENT, LiveServer
from tests.waiting import until

VM = "mci.vm"


class Event(NamedTuple):
    """One event, as a client sees it."""

    name: str
    data: dict[str, object]
    id: int | None


async def events(answer: httpx.Response) -> AsyncIterator[Event]:
    """Yield the events of a stream."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        name, _, value = line.partition(":")
        if line and name:
            fields[name] = value.strip()
        elif not line and "data" in fields:
            number = int(fields["id"]) if "id" in fields else None
            yield Event(fields.get("event", ""), msgspec.json.decode(fields["data"]), number)
            fields = {}


async def followed(live_server: LiveServer, op: str, last: int | None = None) -> list[Event]:
    """Follow an operation to its end."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    async with live_server.client() as client, client.stream("GET", path(op), headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        async with asyncio.timeout(PATIENT):
            return [event async for event in events(answer)]


def path(op: str, ns: str = "a") -> str:
    return f"/api/v1/ns/{ns}/operations/{op}/events"


async def begun(live_server: LiveServer, name: str = "vm") -> str:
    return (await live_server.engine.create("a", name, VM)).op.id


async def test_progress_is_told_as_it_happens_and_the_end_with_the_operation(live_server: LiveServer) -> None:
    live_server.hold()
    op = await begun(live_server)
    async with live_server.client() as client, client.stream("GET", path(op)) as answer:
        coming = events(answer)
        first = await anext(coming)
        assert (first.name, first.data["text"], first.data["done"]) == ("progress", "create at home", 0)
        live_server.release()
        rest = [event async for event in coming]
    assert {event.name for event in rest[:-1]} == {"progress"}
    assert (rest[-1].name, rest[-1].data["id"], rest[-1].data["status"]) == ("end", op, "succeeded")


async def test_who_comes_late_is_told_everything_from_the_beginning(live_server: LiveServer) -> None:
    op = await begun(live_server)
    await live_server.engine.wait_record("a", op, PATIENT)
    told = await followed(live_server, op)
    assert [event.data["done"] for event in told[:-1]] == list(range(len(told) - 1))
    assert told[-1].name == "end"


async def test_who_reconnects_goes_on_behind_the_last_event_that_it_saw(live_server: LiveServer) -> None:
    op = await begun(live_server)
    await live_server.engine.wait_record("a", op, PATIENT)
    everything = await followed(live_server, op)
    for seen, event in enumerate(everything[:-1], 1):
        assert await followed(live_server, op, event.id) == everything[seen:]


async def test_an_operation_that_fails_is_told_so(live_server: LiveServer) -> None:
    live_server.hold()
    op = await begun(live_server)
    await live_server.engine.cancel("a", op)
    told = await followed(live_server, op)
    assert told[-1].data["status"] == "cancelled"


async def test_many_followers_of_one_operation_cost_one_look(live_server: LiveServer) -> None:
    live_server.hold()
    op = await begun(live_server)
    followers = [asyncio.create_task(followed(live_server, op)) for _ in range(20)]
    watched = live_server.live_feeds.operation_followers._followed
    await until(lambda: any(one.readers == 20 for one in watched.values()))
    assert len(watched) == 1
    live_server.release()
    told = await asyncio.gather(*followers)
    assert all(one == told[0] for one in told)
    assert not watched


async def test_a_follower_that_vanishes_is_forgotten(live_server: LiveServer) -> None:
    live_server.hold()
    op = await begun(live_server)
    live_server.live_feeds.operation_followers._keepalive_s = 0.01
    async with live_server.client() as client, client.stream("GET", path(op)) as answer:
        await anext(events(answer))
    await until(lambda: not live_server.live_feeds.operation_followers._followed)


async def test_in_quiet_times_there_are_signs_of_life(live_server: LiveServer) -> None:
    live_server.hold()
    op = await begun(live_server)
    live_server.live_feeds.operation_followers._keepalive_s = 0.01
    async with live_server.client() as client, client.stream("GET", path(op)) as answer:
        async with asyncio.timeout(PATIENT):
            async for line in answer.aiter_lines():
                if line.startswith(":"):
                    break


async def test_a_stopping_server_lets_its_followers_go(live_server: LiveServer) -> None:
    live_server.hold()
    op = await begun(live_server)
    async with live_server.client() as client, client.stream("GET", path(op)) as answer:
        coming = events(answer)
        await anext(coming)
        live_server.server.should_exit = True
        assert [event.name async for event in coming if event.name == "end"] == []
    live_server.release()


async def test_a_token_that_is_taken_back_follows_no_further(live_server: LiveServer) -> None:
    live_server.hold()
    op = await begun(live_server)
    text, info = await live_server.tokens.issue("short", Role.VIEWER, ["a"])
    async with live_server.client(text) as client, client.stream("GET", path(op)) as answer:
        coming = events(answer)
        await anext(coming)
        await live_server.tokens.revoke(info.id)
        async with asyncio.timeout(PATIENT):
            assert [event.name async for event in coming if event.name == "end"] == []
    live_server.release()
    assert (await followed(live_server, op))[-1].name == "end"


async def test_a_token_follows_no_more_operations_at_once_than_its_limit(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "FOLLOWED_PER_TOKEN", 2)
    live_server.hold()
    op = await begun(live_server)
    async with live_server.client() as client, AsyncExitStack() as first:
        streams = [events(await first.enter_async_context(client.stream("GET", path(op)))) for _ in range(2)]
        for one in streams:
            await anext(one)
        refused = await client.get(path(op))
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many")
        assert "follows 2 operations already" in refused.json()["detail"]
        async with live_server.client(await live_server.token("a")) as other, other.stream("GET", path(op)) as answer:
            assert answer.status_code == 200
    live_server.release()
    async with live_server.client() as client, asyncio.timeout(PATIENT):
        answer = await until(lambda: client.get(path(op)), lambda obj: obj.status_code != 429)
    assert "event: end" in answer.text


async def test_an_operation_that_is_not_there_is_a_problem_and_not_a_stream(live_server: LiveServer) -> None:
    await begun(live_server)
    async with live_server.client() as client:
        answer = await client.get(path("nowhere"))
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "9" * 30])
async def test_a_bad_last_event_is_refused(live_server: LiveServer, last: str) -> None:
    op = await begun(live_server)
    async with live_server.client() as client:
        answer = await client.get(path(op), headers={"Last-Event-ID": last})
    assert answer.status_code == 400


async def test_only_those_who_may_read_the_namespace_follow(live_server: LiveServer) -> None:
    op = await begun(live_server)
    tokens = {
        403: [await live_server.token("b"), await live_server.token("a:*", role=Role.AGENT)],
        401: ["sw_0123456789ab_nothing"],
        200: [await live_server.token("a", role=Role.VIEWER)],
    }
    for status, texts in tokens.items():
        for text in texts:
            async with live_server.client(text) as client:
                assert (await client.get(path(op))).status_code == status
