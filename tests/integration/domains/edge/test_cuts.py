"""A connection that is cut at any message, in either direction: the agent comes back, and nobody else notices.

The server is a real process, and agents reach it over real WebSockets. One connection leads through a proxy that
resets it at the message that a test names: before the message arrives, or right after.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Literal

import httpx
import msgspec
import pytest

from stateward.agents.agent import Agent
from stateward.agents.dialer import WebSocketDialer
from stateward.agents.inprocess import AgentEnd
from stateward.agents.measure_messages import Load, Measures
from stateward.agents.messages import Welcome, encode
from stateward.agents.self_upgrade import NoUpgrade
from stateward.agents.simulation import SimulatedSite
from stateward.domains.edge.api.routes import AGENTS_PATH
from tests.integration.domains.edge.proxy import read_frame
from tests.integration.server.server_processes import Served
from tests.long_forms import in_long_form
from tests.waiting import until

NS, EDGE = "lab", "/api/v1/edge/ns/lab"
PATIENT = 60.0
# Three beats of silence end a connection: on a busy machine a short beat would cut berlin's as well.
ENVIRON = {"STATEWARD_EDGE_BEAT": "2", "STATEWARD_RATE": "100000", "STATEWARD_ONLY": "edge"}

Moment = Literal["before", "after"]
FROM_AGENT = ("hello", "item", "end", "report", "progress", "measures", "beat")
FROM_CONTROLLER = ("welcome", "order", "upgrade", "goodbye", "beat")
RESET = struct.pack("ii", 1, 0)


class Cutter:
    """A proxy that resets a connection at one message, once."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._armed: tuple[str, str, Moment] | None = None
        self.cut = asyncio.Event()

    def arm(self, side: str, kind: str, moment: Moment) -> None:
        """Cut at the next message of this kind from this side."""
        self._armed = side, kind, moment
        self.cut.clear()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """Listen on a port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        writers = writer, far_writer
        ways = self._pass("agent", reader, far_writer, writers), self._pass("controller", far_reader, writer, writers)
        await asyncio.gather(*ways, return_exceptions=True)

    async def _pass(
        self,
        side: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        both: tuple[asyncio.StreamWriter, ...],
    ) -> None:
        try:
            writer.write(await reader.readuntil(b"\r\n\r\n"))
            while True:
                frame, text = await read_frame(reader)
                moment = self._moment(side, text)
                if moment != "before":
                    writer.write(frame)
                    await writer.drain()
                if moment is not None:
                    self._armed = None
                    for one in both:
                        reset(one)
                    self.cut.set()
                    return
        finally:
            for one in both:
                one.close()

    def _moment(self, side: str, text: bytes) -> Moment | None:
        try:
            kind = msgspec.json.decode(text)["type"]
        except msgspec.DecodeError:
            return None  # a frame of the WebSocket protocol itself
        return self._armed[2] if self._armed is not None and self._armed[:2] == (side, kind) else None


def reset(writer: asyncio.StreamWriter) -> None:
    """Break a TCP connection at once, without a farewell."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


class CutHarness:
    """A server with two cloudlets: munich, whose agent is behind the cutter, and berlin, whose agent is not."""

    def __init__(self, server: Served) -> None:
        self.server, self.client = server, server.client()
        self.port = int(server.url.rpartition(":")[2])
        self.tokens = {name: self._token(name) for name in ("munich", "berlin")}
        for name in self.tokens:
            self.call("POST", "/cloudlets", {"name": name})

    def _token(self, name: str) -> str:
        body = {"name": name, "role": "agent", "namespaces": [f"{NS}:{name}"]}
        return str(self.client.post("/api/v1/tokens", json=body).json()["token"])

    def call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.client.request(method, f"{EDGE}{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def get(self, path: str) -> Any:
        return self.client.get(f"{EDGE}{path}").json()

    def agent(self, cloudlet: str, port: int) -> Agent:
        caller = WebSocketDialer(
            [f"ws://127.0.0.1:{port}"], AGENTS_PATH, NS, cloudlet, self.tokens[cloudlet], Random(1)
        )
        return Agent(SimulatedSite(), caller, "1.0", NoUpgrade(), observe_interval_s=0.1)

    async def until(self, path: str, *states: str) -> Any:
        return await self.until_true(
            lambda: (found := self.get(path)).get("state") in states and not found["op"] and found
        )

    async def until_gone(self, path: str) -> None:
        await self.until_true(lambda: self.client.get(f"{EDGE}{path}").status_code == httpx.codes.NOT_FOUND)

    async def until_true(self, condition: Any) -> Any:
        return await until(lambda: asyncio.to_thread(condition))

    async def act(self, method: str, path: str, body: Any = None) -> None:
        await asyncio.to_thread(self.call, method, path, body)

    async def clear(self) -> None:
        """Delete all clusters."""
        for one in self.get("/clusterinsts"):
            cloudlet, _, name = one["id"].partition(":")
            path = f"/cloudlets/{cloudlet}/clusterinsts/{name}"
            await self.until(path, "Ready")
            await self.act("DELETE", path)
            await self.until_gone(path)

    def connections(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for one in self.get("/agents")["agents"]:
            found.setdefault(one["cloudlet"], []).append(one["notify"])
        return found


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CutHarness]:
    server = Served(tmp_path_factory.mktemp("cuts") / "controller", environ=ENVIRON)
    try:
        found = CutHarness(server)
        yield found
        found.client.close()
    finally:
        server.process.kill()
        server.ended()


@asynccontextmanager
async def at_work(agent: Agent) -> AsyncIterator[Agent]:
    """Run an agent under a supervisor: one that was dismissed is started again."""

    async def supervise() -> None:
        while True:
            await agent.run()
            await asyncio.sleep(0.1)

    task = asyncio.create_task(supervise())
    try:
        await asyncio.wait_for(agent.synced.wait(), PATIENT)
        yield agent
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def provoke(lab: CutHarness, agent: Agent, kind: str) -> None:
    """Bring about that a message of a kind is sent."""
    match kind:
        case "hello" | "welcome" | "item" | "end":
            assert agent._socket is not None
            await agent._socket.close()
        case "measures":
            await agent._send(Measures(agent.notify, (Load("old", 1, cpu=1.0),)))
        case "order" | "report" | "progress":
            await lab.act("POST", "/cloudlets/munich/clusterinsts", {"name": "cut"})
        case "upgrade":
            await lab.act("POST", "/cloudlets/munich/upgrade", {"version": "2.0"})
        case "goodbye":
            await lab.act("DELETE", "/cloudlets/munich/clusterinsts/old")
            await lab.until_gone("/cloudlets/munich/clusterinsts/old")
            await lab.act("DELETE", "/cloudlets/munich")


async def recover(lab: CutHarness, kind: str) -> None:
    """Do what an administrator would do after the cut, and wait until the agent serves again."""
    if kind == "goodbye":
        await lab.act("POST", "/cloudlets", {"name": "munich"})
    elif kind == "upgrade":
        await lab.until("/cloudlets/munich", "UpdateError")
        await lab.act("POST", "/cloudlets/munich/fix")
    await lab.until_true(lambda: lab.connections().keys() == {"munich", "berlin"})
    await lab.until("/cloudlets/munich", "Ready")


CASES = [
    (side, kind, moment)
    for side, kinds in (("agent", FROM_AGENT), ("controller", FROM_CONTROLLER))
    for kind in kinds
    for moment in ("before", "after")
]
SHORT = [
    ("agent", "hello", "before"),
    ("agent", "item", "after"),
    ("agent", "end", "before"),
    ("agent", "report", "after"),
    ("agent", "measures", "before"),
    ("controller", "welcome", "after"),
    ("controller", "order", "before"),
    ("controller", "upgrade", "after"),
]
"""The cuts of the suite: one of each kind of message that changes anything."""


@pytest.mark.parametrize("case", in_long_form(CASES, short=SHORT), ids=[" ".join(case) for case in CASES])
async def test_a_cut_at_a_message_is_survived_by_its_agent_and_not_noticed_by_others(
    lab: CutHarness, case: tuple[str, str, Moment]
) -> None:
    side, kind, moment = case
    cutter = Cutter(lab.port)
    async with (
        cutter.listening() as port,
        at_work(lab.agent("berlin", lab.port)) as berlin,
        at_work(lab.agent("munich", port)) as munich,
    ):
        await lab.clear()  # what a test that failed has left
        steady = berlin.notify
        await lab.act("POST", "/cloudlets/munich/clusterinsts", {"name": "old"})
        await lab.until("/cloudlets/munich/clusterinsts/old", "Ready")
        cutter.arm(side, kind, moment)
        await provoke(lab, munich, kind)
        await asyncio.wait_for(cutter.cut.wait(), PATIENT)
        await recover(lab, kind)
        for cloudlet in ("munich", "berlin"):
            await lab.act("POST", f"/cloudlets/{cloudlet}/clusterinsts", {"name": "new"})
            await lab.until(f"/cloudlets/{cloudlet}/clusterinsts/new", "Ready")
        assert berlin.notify == steady
        await lab.until_true(lambda: [len(found) for found in lab.connections().values()] == [1, 1])
        await lab.clear()
    assert "Traceback" not in lab.server.output


class DisconnectingDialer:
    """A controller that lets agents in, and is lost immediately if `lasts` is false."""

    def __init__(self, *, lasts: bool = False) -> None:
        self._lasts = lasts

    async def dial(self) -> AgentEnd:
        ours, theirs = AgentEnd(), AgentEnd()
        ours.other, theirs.other = theirs, ours
        ours.put(encode(Welcome(1, beat=3600.0 if self._lasts else 0.01)))
        if not self._lasts:
            theirs.close_both()
        self.dialled += 1
        return ours

    retry_delay_s, dialled, stable = 0.0, 0, 0

    def reset_backoff(self) -> None:
        self.stable += 1


async def test_a_welcome_alone_does_not_reset_the_backoff() -> None:
    controller = DisconnectingDialer()
    task = asyncio.create_task(Agent(SimulatedSite(), controller, "1.0", NoUpgrade()).run())
    async with asyncio.timeout(PATIENT):
        while controller.dialled < 20:
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert controller.stable == 0


async def test_a_connection_that_has_not_lasted_yet_does_not_reset_the_backoff() -> None:
    controller = DisconnectingDialer(lasts=True)
    agent = Agent(SimulatedSite(), controller, "1.0", NoUpgrade())
    task = asyncio.create_task(agent.run())
    async with asyncio.timeout(PATIENT):
        await agent.synced.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert (controller.dialled, controller.stable) == (1, 0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
