import asyncio
import socket
from collections.abc import Callable, Coroutine

import pytest
import uvloop

from stateward.store.postgres.failover import enable_keepalive

WATCHED = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT]


class Connection:
    """The driver's connection, as far as it is looked at."""

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport


async def watched(line: socket.socket) -> list[int]:
    """Let the kernel watch over one end of a line, and return what was set."""
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=line)
    enable_keepalive(Connection(transport), dead_after=8.0)
    copy = line.dup()
    found = [copy.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)]
    if line.family != socket.AF_UNIX:
        found += [copy.getsockopt(socket.IPPROTO_TCP, one) for one in WATCHED]
    copy.close()
    transport.close()
    await asyncio.sleep(0)
    return found


def on(make: Callable[[], asyncio.AbstractEventLoop], program: Coroutine[object, object, list[int]]) -> list[int]:
    with asyncio.Runner(loop_factory=make) as runner:
        return runner.run(program)


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_kernel_gives_a_silent_line_up_on_either_loop(make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = socket.create_connection(server.getsockname())
        line.setblocking(False)
        assert on(make, watched(line)) == [1, 2, 2, 3, 8000]


def test_a_line_within_the_machine_is_left_alone() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        assert on(asyncio.new_event_loop, watched(ours)) == [0]
