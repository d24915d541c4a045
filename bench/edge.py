"""The controller and its agents: what a word costs, how long a thousand take to come back, how soon a crash is known.

The controller is a real `stateward serve` in a process of its own, whose processor time is measured. A round trip is an
agent's heartbeat and its answer, over a thousand connections; the limit is a bare WebSocket echo in the same run.
"""

import asyncio
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import Any

import httpx
import msgspec

from bench.engine.databases import new_folder
from bench.figures import Line, plain, ratio
from bench.measure import Timing
from stateward.agents.messages import Heartbeat, Hello, InventoryEnd, encode
from stateward.agents.simulation import SimulatedFleet
from stateward.domains.edge.api.routes import AGENTS_PATH
from stateward.domains.edge.lifecycle import CLOUDLET, CLUSTERINST
from stateward.domains.edge.model import ClusterInst, InstanceStatus
from stateward.lifecycle import AGENT, CONTROLLER
from stateward.store import open_store
from stateward.store.changes import Changes
from stateward.store.records import Object, to_json
from stateward.testing.protocols import Bounds, FaultBudget, explore
from tests.models.edge_protocol.upgrade_protocol import gathering, upgrade_protocol

NS, MANY, EACH = "lab", 1_000, 20
ROUNDS, BEATS = 7, 5
CRASHES, RESTARTS = 15, 5
USUAL_HEARTBEAT, SETTLED_S, IDLE_S = "10", 10.0, 60.0
BOTH: dict[str, int] = {AGENT: 1, CONTROLLER: 1}
UPGRADES = (
    ("asked twice, 2 losses, 2 duplicates", 2, FaultBudget(2, 2, spared=gathering)),
    ("1 duplicate, 2 crashes", 1, FaultBudget(0, 1, BOTH)),
    ("asked twice, 1 loss, 2 crashes", 2, FaultBudget(1, 0, BOTH, spared=gathering)),
)
PING, PONG = 0x89, b"\x8a"
LONG_FRAME = 126
"""What stands in place of a length that has two bytes of its own."""

TICKS = os.sysconf("SC_CLK_TCK")
STARTED: list[subprocess.Popen[bytes]] = []
STATEWARD = Path(sys.executable).parent / "stateward"


class Server:
    """A controller in a process of its own."""

    def __init__(self, folder: Path, port: int = 0, heartbeat: str = "600") -> None:
        settings = {"STATEWARD_RATE": "1000000", "STATEWARD_EDGE_BEAT": heartbeat}
        environ = {**os.environ, **settings, "PYTHONUNBUFFERED": "1"}
        self.folder = folder
        command = [str(STATEWARD), "serve", "--data", str(folder), "--port", str(port), "--log-level", "error"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ)
        STARTED.append(self.process)
        assert self.process.stdout is not None
        while b"  try" not in self.process.stdout.readline():
            pass
        self.url = json.loads((folder / "server.json").read_bytes())["url"]
        self.port = int(self.url.rpartition(":")[2])
        admin = (folder / "admin-token").read_text().strip()
        headers = {"Authorization": f"Bearer {admin}"}
        self.client = httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)

    @property
    def seconds(self) -> float:
        """How much processor time it has used."""
        return cpu(self.process.pid)

    def token(self) -> str:
        made = self.client.post("/api/v1/tokens", json={"name": "all", "role": "agent", "namespaces": [f"{NS}:*"]})
        return str(made.json()["token"])

    def ready(self) -> int:
        """How many cloudlets are ready."""
        found = self.client.get("/api/v1/namespaces").json()
        counts: dict[str, dict[str, int]] = next((one["counts"] for one in found if one["ns"] == NS), {})
        return counts.get(CLOUDLET.kind, {}).get("Ready", 0)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.client.close()
        self.process.send_signal(how)
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def place(each: int) -> Iterator[Path]:
    """Yield a data folder with a thousand cloudlets that have so many clusters each."""
    folder = new_folder()
    try:
        asyncio.run(furnish(folder / "stateward.db", each))
        yield folder
    finally:
        rmtree(folder)


def names() -> list[str]:
    return [f"site{n:04}" for n in range(MANY)]


async def furnish(file: Path, each: int) -> None:
    store = open_store(str(file))
    await store.open()
    spec = to_json(ClusterInst(revision=7))
    seen = to_json(msgspec.structs.replace(InstanceStatus(7, 0, 7, 7), spec=spec))
    for name in names():
        rows = [row(name, CLOUDLET.kind, "Offline", None, "{}", "{}")]
        rows += [row(f"{name}:c{n}", CLUSTERINST.kind, "Ready", name, spec, seen) for n in range(each)]
        changes = Changes(objects=rows)
        await store.transact(lambda tx, changes=changes: tx.apply(changes))  # type: ignore[misc]
    await store.close()


def row(id_: str, kind: str, state: str, parent: str | None, spec: str, seen: str) -> Object:
    now = time.time()
    return Object(NS, id_, kind, state, now, 1, 1, None, id_, parent, spec, "{}", None, now, seen=seen)


def report() -> list[Line]:
    with place(0) as empty, place(EACH) as full:
        try:
            return [*upgrades(), *round_trips(empty), *returns(full), *crashes(empty), *restarts(empty), *idle(empty)]
        finally:
            for one in STARTED:
                one.kill()


# --- the proof -------------------------------------------------------------------------------------------------------


def upgrades() -> list[str]:
    """Explore the upgrade with two agents; the protocol of instances is in `bench.explore`."""
    lines = ["the upgrade of an agent, explored: a controller and two agents"]
    for what, asks, faults in UPGRADES:
        found = explore(upgrade_protocol(asks), faults, Bounds(copies=1))
        verdict = "holds" if found.violation is None and found.complete else str(found)
        lines.append(f"  {found.visited:9,} states, {found.transitions:9,} transitions, {what}: {verdict}")
    return lines


# --- round trips -----------------------------------------------------------------------------------------------------


def dialled(port: int, path: str, token: str = "") -> socket.socket:
    """Open a WebSocket, bare."""
    found = socket.create_connection(("127.0.0.1", port))
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    key = b64encode(os.urandom(16)).decode()
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    more = f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\nAuthorization: Bearer {token}\r\n\r\n"
    found.sendall((head + more).encode())
    data = b""
    while b"\r\n\r\n" not in data:
        data += found.recv(4096)
    assert b" 101 " in data, data
    return found


def frame(message: bytes) -> bytes:
    """Return a text frame with a mask of zeros."""
    short = len(message) < LONG_FRAME
    length = bytes([0x80 | len(message)]) if short else bytes([0x80 | LONG_FRAME]) + struct.pack(">H", len(message))
    return b"\x81" + length + b"\0\0\0\0" + message


def introduced(port: int, name: str, token: str) -> socket.socket:
    """Open a connection as an agent that has nothing."""
    found = dialled(port, f"/api/v1/edge/agents/{NS}/{name}", token)
    found.sendall(frame(encode(Hello("1.0"))))
    welcome = found.recv(4096)
    notify = json.loads(welcome[welcome.index(b"{") :])["notify"]  # after its length, which has one byte or three
    found.sendall(frame(encode(InventoryEnd(0, notify))))
    return found


def answered(found: socket.socket) -> int:
    """Read what has come, and return how many answers it is; a ping of the server's is answered beside."""
    data, answers = found.recv(65536), 0
    while data:
        head, length = data[0], data[1]
        body, data = data[2 : 2 + length], data[2 + length :]
        if head == PING:
            found.sendall(PONG + bytes([0x80 | length]) + b"\0\0\0\0" + body)
        else:
            answers += 1
    return answers


def beat(sockets: list[socket.socket], message: bytes) -> None:
    """Send a heartbeat over every connection, some times, and read the answers."""
    with selectors.DefaultSelector() as waiting:
        left = dict.fromkeys(sockets, BEATS)
        for one in sockets:
            one.sendall(message)
            waiting.register(one, selectors.EVENT_READ)
        while left:
            for key, _ in waiting.select():
                found = key.fileobj
                assert isinstance(found, socket.socket)
                answers = answered(found)
                left[found] -= answers
                if left[found] <= 0:
                    waiting.unregister(found)
                    del left[found]
                elif answers:
                    found.sendall(message)


def round_trips(folder: Path) -> list[Line]:
    ours = Server(folder)
    echo = subprocess.Popen([sys.executable, "-m", "bench.edge_echo"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert echo.stdout is not None
    assert echo.stdin is not None
    port = json.loads(echo.stdout.readline())["port"]
    token = ours.token()
    agents = [introduced(ours.port, name, token) for name in names()]
    bare = [dialled(port, "/") for _ in range(MANY)]
    while ours.ready() < MANY:
        time.sleep(0.1)
    cases = {
        "beat": (ours.process.pid, agents, frame(encode(Heartbeat(1)))),
        "echo": (echo.pid, bare, frame(encode(Heartbeat(1)))),
    }
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(ROUNDS + 1):
        for name, (pid, sockets, message) in cases.items():
            before = cpu(pid)
            beat(sockets, message)
            taken[name].append((cpu(pid) - before) / (MANY * BEATS))
    for one in (*agents, *bare):
        one.close()
    echo.stdin.close()
    echo.wait(60)
    echo.stdout.close()
    ours.stop()
    mine, limit = (Timing(name, tuple(rounds[1:])) for name, rounds in taken.items())
    return [
        f"an agent's heartbeat and its answer, {MANY:,} agents, in processor time of the controller",
        ratio("an agent's heartbeat and its answer", mine.times(limit), "the time of a bare WebSocket echo", 3),
        *(f"  {one.seconds * 1e6:7.0f} µs each  {one.name}" for one in (mine, limit)),
    ]


# --- coming back -----------------------------------------------------------------------------------------------------


def returns(folder: Path) -> list[Line]:
    return asyncio.run(_returns(folder))


async def _returns(folder: Path) -> list[Line]:
    server = await asyncio.to_thread(Server, folder)
    fleet = SimulatedFleet([f"ws://127.0.0.1:{server.port}"], AGENTS_PATH, NS, names(), server.token())
    fleet.add_existing({name: {f"c{n}": 7 for n in range(EACH)} for name in names()})
    fleet.start()
    await fleet.wait_synced()
    server.stop(signal.SIGKILL)
    await fleet.wait_disconnected()
    begun = time.perf_counter()
    server = await asyncio.to_thread(Server, folder, server.port)
    up = time.perf_counter()
    while await asyncio.to_thread(server.ready) < MANY:
        await asyncio.sleep(0.05)
    done = time.perf_counter()
    used = server.seconds
    await fleet.stop()
    server.stop()
    what = f"{MANY:,} agents back at once, {EACH} instances each"
    return [
        f"{MANY:,} agents with {EACH} instances each, all back at once after the controller was killed",
        plain(f"{what}, from the restart", done - begun, "s"),
        plain(f"{what}, after it answers", done - up, "s"),
        plain(f"{what}, of the controller's processor", used / MANY * 1e3, "ms an agent"),
    ]


# --- crashes ---------------------------------------------------------------------------------------------------------


def crashes(folder: Path) -> list[Line]:
    server = Server(folder)
    token, taken = server.token(), []
    here = f"/api/v1/edge/ns/{NS}/cloudlets/site0000"
    for _ in range(CRASHES):
        agent = introduced(server.port, "site0000", token)
        until(server.client, here, "Ready")
        agent.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        begun = time.perf_counter()
        agent.close()
        until(server.client, here, "Offline")
        taken.append(time.perf_counter() - begun)
    server.stop()
    return [
        "an agent that crashes",
        plain("an agent's crash, until everybody sees its cloudlet Offline", median(taken) * 1e3, "ms"),
    ]


def with_cluster(server: Server, cloudlet: str) -> subprocess.Popen[bytes]:
    """Start a real agent, and create a cluster of two nodes at it."""
    (server.folder / "token").write_text(server.token())
    here = f"/api/v1/edge/ns/{NS}/cloudlets/{cloudlet}"
    agent = working(server, cloudlet)
    until(server.client, here, "Ready")
    server.client.post(f"{here}/clusterinsts", json={"name": "c1", "nodes": 2})
    until(server.client, f"{here}/clusterinsts/c1", "Ready")
    return agent


def end_with_cluster(server: Server, cloudlet: str, agent: subprocess.Popen[bytes]) -> None:
    """Delete the cluster of an agent, and stop both."""
    cluster = f"/api/v1/edge/ns/{NS}/cloudlets/{cloudlet}/clusterinsts/c1"
    server.client.delete(cluster)
    until(server.client, cluster, "NotPresent")
    agent.kill()
    agent.wait(60)
    server.stop()


def restarts(folder: Path) -> list[Line]:
    """Kill a real agent that has a real cluster, and start it again at once."""
    server, taken = Server(folder), []
    agent, here = with_cluster(server, "site0001"), f"/api/v1/edge/ns/{NS}/cloudlets/site0001"
    for _ in range(RESTARTS):
        begun = time.perf_counter()
        agent.kill()
        agent.wait(60)
        agent = working(server, "site0001")
        until(server.client, here, "Offline")
        until(server.client, here, "Ready")
        taken.append(time.perf_counter() - begun)
    end_with_cluster(server, "site0001", agent)
    return [
        plain("an agent's crash, until its next process has told what it has, and all is settled", median(taken), "s")
    ]


def idle(folder: Path) -> list[Line]:
    """Let a real agent that has a real cluster do nothing but observe, measure and send heartbeats."""
    server = Server(folder, heartbeat=USUAL_HEARTBEAT)
    agent = with_cluster(server, "site0002")
    time.sleep(SETTLED_S)
    used = cpu(agent.pid)
    time.sleep(IDLE_S)
    share, memory = (cpu(agent.pid) - used) / IDLE_S, resident_mb(agent.pid)
    end_with_cluster(server, "site0002", agent)
    what = "an idle agent with a cluster of two nodes"
    return [plain(what, share * 100, "% of a processor", 0.5), plain(what, memory, "MB of memory", 60)]


def resident_mb(pid: int) -> float:
    """Return how much memory a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def working(server: Server, cloudlet: str) -> subprocess.Popen[bytes]:
    """Start a real agent."""
    where = ("--controller", f"ws://127.0.0.1:{server.port}", "--cloudlet", cloudlet, "--namespace", NS)
    files = ("--token-file", str(server.folder / "token"), "--data", str(server.folder / "agent"))
    command = [str(STATEWARD), "agent", *where, *files]
    STARTED.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    return STARTED[-1]


def until(client: httpx.Client, path: str, state: str) -> None:
    while True:
        answer = client.get(path)
        found: dict[str, Any] = answer.json() if answer.is_success else {"state": "NotPresent"}
        if found["state"] == state:
            return
        time.sleep(0.001)
