import asyncio
import itertools
import json
import socket
from contextlib import suppress
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from stateward.access import Role
from stateward.aio.supervise import cancel_tasks
from stateward.server import connection_limits
from tests.integration.server.live_server import PATIENT, LiveServer, lines_until, said
from tests.waiting import until


async def begun(stream: ClientConnection, **word: Any) -> int:
    """Say the first word, and return the number of the snapshot."""
    await stream.send(json.dumps(word))
    snapshot: int = (await said(stream))["snapshot"]["seq"]
    return snapshot


async def closed(stream: ClientConnection) -> tuple[int, str]:
    """Read to the end, and return how it came."""
    with suppress(ConnectionClosed):
        async with asyncio.timeout(PATIENT):
            async for _ in stream:
                pass
    return stream.close_code or 0, stream.close_reason or ""


def objects(lines: list[dict[str, Any]]) -> list[str]:
    return [line["object"] for line in lines]


async def test_a_snapshot_counts_what_there_is_and_then_every_change_follows(live_server: LiveServer) -> None:
    await live_server.define("a", "one", "two")
    async with live_server.stream() as stream:
        await stream.send("{}")
        snapshot = (await said(stream))["snapshot"]
        assert snapshot["objects"] == {"a": {"ovc.vm": {"VIRTUAL": 2}}}
        await live_server.define("a", "three")
        (line,) = await lines_until(stream, 1)
        assert (line["object"], line["event"], line["target"]) == ("three", "define", "VIRTUAL")
        assert line["seq"] > snapshot["seq"]
        assert line["at"].endswith("Z")


async def test_who_comes_back_goes_on_from_the_last_number_and_misses_nothing(live_server: LiveServer) -> None:
    async with live_server.stream() as stream:
        await begun(stream)
        await live_server.define("a", "one")
        message = await said(stream)
    await live_server.define("a", "two", "three")
    async with live_server.stream() as stream:
        await stream.send(json.dumps({"after": message["seq"]}))
        assert sorted(objects(await lines_until(stream, 2))) == ["three", "two"]


async def test_a_number_of_the_beginning_replays_the_whole_journal(live_server: LiveServer) -> None:
    names = [f"vm-{number:04}" for number in range(1200)]
    await live_server.define("a", *names)
    async with live_server.stream() as stream:
        await stream.send(json.dumps({"after": 0, "kind": "ovc.vm"}))
        lines = await lines_until(stream, len(names))
    assert sorted(objects(lines)) == names
    assert [line["seq"] for line in lines] == sorted({line["seq"] for line in lines})


async def test_a_number_that_the_journal_has_not_reached_belongs_to_another_one(live_server: LiveServer) -> None:
    async with live_server.stream() as stream:
        assert await begun(stream, after=10**9) < 10**9


async def test_a_number_that_only_the_feed_has_not_reached_is_continued_from(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, gate = live_server.live_feeds.feed, asyncio.Event()
    with monkeypatch.context() as held:
        before, pause = feed.seq, feed._pause  # one that begins now may end before the first entry is there
        held.setattr(feed, "_pause", lambda woken: gate.wait() if feed.seq > before else pause(woken))
        await live_server.define("a", "one")
        await until(lambda: feed.seq > before)  # and it reads nothing more
        await live_server.define("a", "two")
        last = await live_server.engine.store.reader.last_journal_seq()
        assert feed.seq < last
        async with live_server.stream() as stream:
            await stream.send(json.dumps({"after": last}))
            assert await said(stream) == {"lines": [], "seq": last}
            await live_server.define("a", "three")
            held.undo()
            gate.set()
            assert objects(await lines_until(stream, 1)) == ["three"]


async def test_nothing_is_lost_or_doubled_while_much_is_written(live_server: LiveServer) -> None:
    names = [f"vm-{number:04}" for number in range(600)]
    async with live_server.stream() as first, live_server.stream() as second:
        await begun(first)
        await begun(second)
        writing = asyncio.create_task(live_server.define("a", *names))
        for stream in (first, second):
            lines = await lines_until(stream, len(names))
            assert sorted(objects(lines)) == names
            assert [line["seq"] for line in lines] == sorted({line["seq"] for line in lines})
        await writing


async def test_a_reader_sees_only_the_namespaces_that_its_token_opens(live_server: LiveServer) -> None:
    await live_server.define("b", "hidden")
    async with live_server.stream(await live_server.token("a")) as stream:
        await stream.send("{}")
        assert (await said(stream))["snapshot"]["objects"] == {}
        await live_server.define("b", "secret")
        await live_server.define("a", "mine")
        assert objects(await lines_until(stream, 1)) == ["mine"]


async def test_a_reader_may_ask_for_some_namespaces_and_one_kind_only(live_server: LiveServer) -> None:
    async with live_server.stream() as stream:
        await begun(stream, ns=["a", "c"], kind="ovc.vm")
        await live_server.engine.create("a", "disk", "ovc.disk", "define")
        await live_server.define("b", "two")
        await live_server.define("c", "three")
        assert objects(await lines_until(stream, 1)) == ["three"]


async def test_lines_about_tokens_are_for_administrators_of_everything_and_without_what_is_kept(
    live_server: LiveServer,
) -> None:
    async with (
        live_server.stream() as admin,
        live_server.stream(await live_server.token("*", role=Role.VIEWER)) as viewer,
    ):
        await begun(admin)
        await begun(viewer)
        await live_server.token("a")
        await live_server.define("a", "one")
        line, _ = await lines_until(admin, 2)
        assert (line["kind"], line["spec"]) == ("access.token", None)
        assert objects(await lines_until(viewer, 1)) == ["one"]


async def test_a_foreign_namespace_is_refused(live_server: LiveServer) -> None:
    async with live_server.stream(await live_server.token("a")) as stream:
        await stream.send(json.dumps({"ns": ["a", "b"]}))
        code, reason = await closed(stream)
    assert (code, "'b'" in reason) == (4403, True)


async def test_an_agent_may_not_read(live_server: LiveServer) -> None:
    async with live_server.stream(await live_server.token("a:*", role=Role.AGENT)) as stream:
        await stream.send("{}")
        assert (await closed(stream))[0] == 4403


async def test_a_browser_gives_its_token_in_the_first_message(live_server: LiveServer) -> None:
    async with live_server.stream("") as stream:
        await begun(stream, token=await live_server.token("a"))


@pytest.mark.parametrize("word", [{}, {"token": "sw_0123456789ab_wrong"}, {"token": ""}])
async def test_without_a_valid_token_there_is_nothing_to_see(live_server: LiveServer, word: dict[str, str]) -> None:
    async with live_server.stream("") as stream:
        await stream.send(json.dumps(word))
        assert (await closed(stream))[0] == 4401


@pytest.mark.parametrize(
    "word",
    [
        *("", "not JSON", "[]", '{"unknown": 1}', '{"after": -1}', '{"after": "1"}', '{"ns": "a"}', b"\x00\xff"),
        *(r'{"after": 0, "kind": "a\u0000"}', r'{"after": 0, "ns": ["a\u0000"]}'),  # no store of ours holds these
    ],
)
async def test_a_first_word_that_is_not_understood_is_refused(live_server: LiveServer, word: str | bytes) -> None:
    async with live_server.stream() as stream:
        await stream.send(word)
        assert (await closed(stream))[0] == 4400


async def test_a_token_that_is_taken_back_ends_its_streams_at_once(live_server: LiveServer) -> None:
    text, info = await live_server.tokens.issue("short", Role.VIEWER, ["a"])
    async with live_server.stream(text) as stream, live_server.stream() as other:
        await begun(stream)
        await begun(other)
        await live_server.tokens.revoke(info.id)
        assert (await closed(stream))[0] == 4401
        await lines_until(other, 1)


async def test_in_quiet_times_there_are_signs_of_life(live_server: LiveServer) -> None:
    live_server.live_feeds.stream.keepalive_s = 0.01
    async with live_server.stream() as stream:
        seq = await begun(stream)
        assert await said(stream) == {"lines": [], "seq": seq}


async def test_a_quiet_namespace_gives_signs_of_life_while_others_are_busy(live_server: LiveServer) -> None:
    live_server.live_feeds.stream.keepalive_s = 1.0
    async with live_server.stream(await live_server.token("a")) as stream:
        await begun(stream)

        async def keep_busy() -> None:
            for number in itertools.count():
                await live_server.define("b", f"n{number}")

        busy = asyncio.create_task(keep_busy())
        assert (await said(stream))["lines"] == []
        await cancel_tasks([busy])


async def test_whatever_else_a_client_says_is_passed_over(live_server: LiveServer) -> None:
    async with live_server.stream() as stream:
        await begun(stream)
        for _ in range(100):
            await stream.send("hello?")
        await live_server.define("a", "one")
        assert objects(await lines_until(stream, 1)) == ["one"]


async def test_a_stopping_server_lets_its_readers_go(live_server: LiveServer) -> None:
    async with live_server.stream() as stream:
        await begun(stream)
        live_server.server.should_exit = True
        assert (await closed(stream))[0] == 1001


async def raw_reader(live_server: LiveServer) -> socket.socket:
    """Open a stream on a bare socket with little room, and read no more than the first answer."""
    host, port = live_server.url.removeprefix("http://").split(":")
    bare = socket.socket()
    bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    bare.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(bare, (host, int(port)))
    handshake = (
        f"GET /api/v1/stream HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        f"Authorization: Bearer {live_server.admin}\r\n\r\n"
    )
    await loop.sock_sendall(bare, handshake.encode())
    await loop.sock_recv(bare, 1000)
    await loop.sock_sendall(bare, b"\x81\x82\x00\x00\x00\x00{}")  # a masked text frame
    await loop.sock_recv(bare, 1000)
    return bare


async def flooded(live_server: LiveServer) -> list[str]:
    """Write more than fits between a server and a client that does not read."""
    names = [f"vm-{number:03}" for number in range(300)]
    await live_server.define("a", *names, spec={"about": "x" * 50_000})
    return names


async def test_a_slow_reader_holds_nobody_up_and_is_dropped(live_server: LiveServer) -> None:
    live_server.live_feeds.stream.send_timeout_s = 5.0  # long enough for a quick one, whatever else the machine does
    async with live_server.stream() as quick:
        await begun(quick)
        slow = await raw_reader(live_server)
        await until(lambda: live_server.live_feeds.feed.readers == 2)
        flood = asyncio.create_task(flooded(live_server))
        lines = await lines_until(quick, 300)
        assert sorted(objects(lines)) == await flood
        await until(lambda: live_server.live_feeds.feed.readers == 1)
        slow.close()


async def test_a_slow_reader_is_told_why_behind_what_it_had_not_read(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "ABORT_AFTER_S", PATIENT)
    live_server.live_feeds.stream.send_timeout_s = 0.2
    slow = await raw_reader(live_server)
    await flooded(live_server)
    await until(lambda: live_server.live_feeds.feed.readers == 0)
    loop, received = asyncio.get_running_loop(), b""
    async with asyncio.timeout(PATIENT):
        while (4408).to_bytes(2) + b"the client does not read the stream" not in received:
            chunk = await loop.sock_recv(slow, 1 << 20)
            assert chunk, "it was cut before it was told"
            received = received[-100:] + chunk
    slow.close()


async def test_a_reader_that_vanishes_is_forgotten(live_server: LiveServer) -> None:
    vanishing = await raw_reader(live_server)
    await until(lambda: live_server.live_feeds.feed.readers == 1)
    vanishing.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # no goodbye
    vanishing.close()
    await until(lambda: live_server.live_feeds.feed.readers == 0)


async def test_a_reader_that_vanishes_in_the_middle_of_a_flood_is_forgotten(live_server: LiveServer) -> None:
    vanishing = await raw_reader(live_server)
    flood = asyncio.create_task(flooded(live_server))
    vanishing.close()
    await flood
    await until(lambda: live_server.live_feeds.feed.readers == 0)
