"""A body that does not arrive in time is refused, whoever sends it and however it is framed."""

import asyncio
import socket
from pathlib import Path

import pytest

from stateward.server.connection_limits import LimitedHttpProtocol
from tests.integration.server.live_server import PATIENT, LiveServer, open_live_server
from tests.waiting import until

PLAIN, CHUNKED = "content-length: 500000", "transfer-encoding: chunked"


async def begun(live_server: LiveServer, framing: str, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = live_server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {live_server.admin}\r\n"
    writer.write(f"{head}content-type: application/json\r\n{framing}\r\n\r\n".encode())
    return reader, writer


async def drip(writer: asyncio.StreamWriter, framing: str) -> None:
    """Send a byte now and then, for ever; also while the answer is on its way, which must not be lost by it."""
    while True:
        writer.write(b" " if framing == PLAIN else b"1\r\n \r\n")
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("framing", [PLAIN, CHUNKED])
@pytest.mark.parametrize("path", ["/api/v1/ns/a/objects", "/api/v1/nowhere"])
async def test_a_body_that_arrives_byte_by_byte_is_refused_and_its_connection_closed(
    tmp_path: Path, framing: str, path: str
) -> None:
    async with open_live_server(tmp_path, body_time=0.3) as live_server, asyncio.timeout(PATIENT):
        reader, writer = await begun(live_server, framing, path)
        dripping = asyncio.create_task(drip(writer, framing))
        answer = await reader.read()
        dripping.cancel()
        writer.close()
    status = answer.split(b" ", 2)[1]
    assert status == (b"404" if "nowhere" in path else b"408")
    if status == b"408":
        assert b'"code":"too_slow"' in answer
        assert b"connection: close" in answer


async def served_connection(live_server: LiveServer) -> LimitedHttpProtocol:
    """Return the server's side of the only connection."""
    await until(lambda: len(live_server.server.server_state.connections) == 1)
    (found,) = live_server.server.server_state.connections
    assert isinstance(found, LimitedHttpProtocol)
    return found


async def test_a_body_that_is_whole_in_time_is_answered_and_the_connection_kept(tmp_path: Path) -> None:
    async with open_live_server(tmp_path) as live_server, asyncio.timeout(PATIENT):
        body = b'{"id": "one", "kind": "ovc.vm", "action": "define"}'
        reader, writer = await begun(live_server, f"content-length: {len(body)}", "/api/v1/ns/a/objects")
        writer.write(body[:10])
        connection = await served_connection(live_server)
        await until(lambda: connection._body == 10 and connection._late is not None)
        writer.write(body[10:])
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.split(b" ", 2)[1] in (b"201", b"202")
        assert connection._late is None  # however long it is idle, no body is late
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b'{"status":"ok"}')
        writer.close()


async def test_a_large_body_that_keeps_coming_gets_the_time_that_it_needs(tmp_path: Path) -> None:
    async with open_live_server(tmp_path, body_limit=10_000_000) as live_server, asyncio.timeout(PATIENT):
        size = 160_000  # earns ten seconds
        reader, writer = await begun(live_server, f"content-length: {size + 2}", "/api/v1/ns/a/objects")
        writer.write(b"{" + b" " * size)
        connection = await served_connection(live_server)
        await until(lambda: connection._body == size + 1)
        connection._body_began -= connection.body_time + 1  # as if that time had passed
        connection._check_body()
        writer.write(b"}")
        assert (await reader.readuntil(b"\r\n")).split(b" ", 2)[1] == b"400"
        writer.close()


async def test_a_client_that_goes_on_sending_after_the_refusal_can_still_read_it(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with open_live_server(tmp_path, body_time=0.2) as live_server, asyncio.timeout(PATIENT):
        host, port = live_server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.setblocking(False)
            await loop.sock_sendall(client, b"POST /api/v1/ns/a/objects HTTP/1.1\r\nhost: x\r\n")
            await loop.sock_sendall(client, f"authorization: Bearer {live_server.admin}\r\n{CHUNKED}\r\n\r\n".encode())
            connection = await served_connection(live_server)
            await until(lambda: connection._refused)
            for _ in range(20):
                await loop.sock_sendall(client, b"1\r\n \r\n")
            answer = b""
            while part := await loop.sock_recv(client, 10_000):
                answer += part
            assert answer.startswith(b"HTTP/1.1 408")
