"""The server: calls against a bare handler with the same payload, a thousand readers of the stream, large listings.

What is compared is the processor time that the server's process uses for each call: on a machine that others use too,
it says more than the clock. All cases take turns. The clients are bare sockets, in this process, so that they cost the
server nothing.
"""

import json
import os
import selectors
import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import rmtree
from statistics import median
from time import perf_counter
from typing import Any

from bench.engine.databases import filled, new_file
from bench.engine.lamps import NS, name_of
from bench.figures import Line, plain, ratio
from bench.measure import Timing

CALLS, ROUNDS, CONNECTIONS = 1_000, 9, 64
READERS, A_SECOND, SECONDS = 1_000, 100, 10.0
MANY = 1_000_000
BARE = "the time of a bare Litestar handler with the same payload"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Child:
    """A process that is measured."""

    def __init__(self, *role: str) -> None:
        command = [sys.executable, "-m", "bench.server_child", *role]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.told: dict[str, Any] = self._heard()

    def _heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        heard: dict[str, Any] = json.loads(self._process.stdout.readline())
        return heard

    def say(self, **what: object) -> None:
        """Have something done, and return when it is."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()

    def done(self) -> None:
        """Wait until it is done."""
        self._heard()

    @property
    def seconds(self) -> float:
        """How much processor time its threads have used; a clock that only ticks would be too coarse."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    @property
    def bytes(self) -> int:
        """How much memory it has."""
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * PAGE_BYTES

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


@contextmanager
def child(*role: str) -> Iterator[Child]:
    """Run a process, and end it."""
    one = Child(*role)
    try:
        yield one
    finally:
        one.stop()


@contextmanager
def lamps(number: int) -> Iterator[str]:
    """Yield a database with so many lamps in it, and remove it."""
    file = filled(new_file(), number)
    try:
        yield file
    finally:
        rmtree(Path(file).parent)


class Caller:
    """Some connections to a server, each with one call at a time."""

    def __init__(self, server: Child, connections: int = CONNECTIONS) -> None:
        host, port = server.told["address"].split(":")
        self._headers = f"Host: {host}\r\nAuthorization: Bearer {server.told['token']}\r\n"
        self._sockets = [socket.create_connection((host, int(port))) for _ in range(connections)]
        for one in self._sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get(self, path: str) -> bytes:
        """Write a call that reads."""
        return f"GET {path} HTTP/1.1\r\n{self._headers}\r\n".encode()

    def post(self, path: str, body: str) -> bytes:
        """Write a call that changes something."""
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return f"POST {path} HTTP/1.1\r\n{self._headers}{kind}\r\n{body}".encode()

    def run(self, calls: list[bytes], status: bytes) -> None:
        """Make all calls, as fast as they are answered."""
        left = iter(calls)
        with selectors.DefaultSelector() as waiting:
            for one in self._sockets:
                one.sendall(next(left))
                waiting.register(one, selectors.EVENT_READ)
            while waiting.get_map():
                for key, _ in waiting.select():
                    read_answer(key.fileobj, status)  # type: ignore[arg-type]
                    call = next(left, None)
                    if call is None:
                        waiting.unregister(key.fileobj)
                    else:
                        key.fileobj.sendall(call)  # type: ignore[union-attr]

    def close(self) -> None:
        """Hang up."""
        for one in self._sockets:
            one.close()


def read_answer(connection: socket.socket, status: bytes) -> bytes:
    """Read one answer, whole, and return its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.split(b" ", 2)[1] == status, data
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(1 << 20)
    return body


def report() -> list[Line]:
    """Measure and return lines to print."""
    return [*calls(), *readers(), *pages()]


# --- calls -----------------------------------------------------------------------------------------------------------


def calls() -> list[Line]:
    """Compare calls with the same calls to handlers that do nothing."""
    total = (ROUNDS + 1) * CALLS
    with ExitStack() as stack:
        ours = stack.enter_context(child("ours", stack.enter_context(lamps(total))))
        bare = stack.enter_context(child("bare"))
        accept = stack.enter_context(child("accept", stack.enter_context(lamps(total))))
        one, other = Caller(ours), Caller(bare)
        cases: dict[str, tuple[Child, Callable[[int], None]]] = {
            "GET": (ours, lambda _: one.run([one.get(place(1))] * CALLS, b"200")),
            "bare GET": (bare, lambda _: other.run([other.get(place(1))] * CALLS, b"200")),
            "POST": (ours, lambda turn: one.run(actions(one, turn), b"202")),
            "bare POST": (bare, lambda turn: other.run(actions(other, turn), b"202")),
            "accept": (accept, lambda turn: accepted(accept, turn)),
        }
        timings = in_turns(cases)
        one.close()
        other.close()
    return told(timings)


def place(number: int) -> str:
    return f"/api/v1/ns/{NS}/objects/{name_of(number)}"


def actions(caller: Caller, turn: int) -> list[bytes]:
    numbers = range(turn * CALLS, (turn + 1) * CALLS)
    return [caller.post(f"{place(number)}/actions/flash", '{"args":{"times":3}}') for number in numbers]


def accepted(process: Child, turn: int) -> None:
    process.say(first=turn * CALLS, actions=CALLS)
    process.done()


def in_turns(cases: dict[str, tuple[Child, Callable[[int], None]]]) -> dict[str, Timing]:
    """Run all cases in turns; the first round warms up and is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(ROUNDS + 1):
        for name, (process, run) in cases.items():
            before = process.seconds
            run(turn)
            taken[name].append((process.seconds - before) / CALLS)
    return {name: Timing(name, tuple(rounds[1:])) for name, rounds in taken.items()}


def told(timings: dict[str, Timing]) -> list[Line]:
    get, bare_get, post, bare_post, accept = timings.values()
    rounds = zip(post.rounds, bare_post.rounds, accept.rounds, strict=True)
    share = median((mine - http) / alone for mine, http, alone in rounds)
    return [
        "calls, in processor time of the server's process",
        ratio("GET of an object", get.times(bare_get), BARE, 2),
        ratio("POST of an action", post.times(bare_post), BARE),
        ratio("POST of an action, without its HTTP", share, "the time of the engine's own accept", 1.5),
        *(f"  {one.seconds * 1e6:7.0f} µs each  {one.name}" for one in timings.values()),
    ]


# --- readers ---------------------------------------------------------------------------------------------------------


def readers() -> list[Line]:
    """Open many streams, and see what they cost in memory, and in processor time while something happens."""
    with lamps(10) as database, child("ours", database) as ours:
        alone = busy(ours)
        before = ours.bytes
        streams = [opened(ours) for _ in range(READERS)]
        each = (ours.bytes - before) / READERS
        watched = busy(ours, streams)
        for stream in streams:
            stream.close()
    return [
        f"{READERS:,} idle readers of the stream",
        plain("an idle reader of the stream", each / 1024, "KiB of memory"),
        f"  {alone:7.1%} of a core at {A_SECOND} transitions a second without readers",
        f"  {watched:7.1%} of a core at {A_SECOND} transitions a second with all of them",
        plain(f"a reader at {A_SECOND} transitions a second", (watched - alone) / READERS * 1e6, "µs a second"),
    ]


def opened(server: Child) -> socket.socket:
    """Open a stream, and wait for its snapshot."""
    host, port = server.told["address"].split(":")
    stream = socket.create_connection((host, int(port)))
    key = b64encode(os.urandom(16)).decode()
    stream.sendall(
        f"GET /api/v1/stream HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        f"Authorization: Bearer {server.told['token']}\r\n\r\n".encode()
    )
    data = b""
    while b"\r\n\r\n" not in data:
        data += stream.recv(4096)
    stream.sendall(b"\x81\x82\x00\x00\x00\x00{}")  # a text frame, masked with zeros
    while b"snapshot" not in data:
        data += stream.recv(4096)
    return stream


def busy(server: Child, streams: list[socket.socket] | None = None) -> float:
    """Return the share of a core that a server needs for a steady flow of transitions."""
    before, begun = server.seconds, perf_counter()
    server.say(a_second=A_SECOND, seconds=SECONDS)
    with selectors.DefaultSelector() as waiting:
        for stream in streams or ():
            waiting.register(stream, selectors.EVENT_READ)
        while perf_counter() - begun < SECONDS:
            for key, _ in waiting.select(0.1):
                key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
    server.done()
    return (server.seconds - before) / (perf_counter() - begun)


# --- pages -----------------------------------------------------------------------------------------------------------


def pages() -> list[Line]:
    """Compare the first and the last page of a thousand out of a million objects."""
    with lamps(MANY) as database, child("ours", database) as ours:
        caller = Caller(ours, 1)
        listing = f"/api/v1/ns/{NS}/objects?limit=1000"
        last = sorted(name_of(number) for number in range(MANY))[-1001]
        first_page, last_page = caller.get(listing), caller.get(f"{listing}&after={last}")
        rounds = [(timed(caller, first_page), timed(caller, last_page)) for _ in range(2 * ROUNDS)]
        caller.close()
    first, later = (
        Timing("first", tuple(one for one, _ in rounds[2:])),
        Timing("last", tuple(one for _, one in rounds[2:])),
    )
    return [
        f"a page of 1,000 of {MANY:,} objects",
        ratio(f"the last page of 1,000 of {MANY:,} objects", later.times(first), "the time of the first", 1.5),
        *(f"  {one.seconds * 1e3:7.1f} ms  {one.name} page" for one in (first, later)),
    ]


def timed(caller: Caller, call: bytes) -> float:
    begun = perf_counter()
    caller.run([call], b"200")
    return perf_counter() - begun
