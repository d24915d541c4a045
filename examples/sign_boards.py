"""A plugin with agents: each sign board has a small computer, whose agent shows the text that users ask for.

    python examples/sign_boards.py BOARD FILE TOKEN_FILE ws://127.0.0.1:8420

runs the agent of a board. docs/howto/agent.md explains both sides.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from litestar import WebSocket, websocket
from litestar.types import ControllerRouterHandler
from msgspec import Struct

from stateward.agents.agent import Agent
from stateward.agents.agent_hub import AgentHub, SyncResult
from stateward.agents.connection import AgentConnection, ConnectionId, OtherMessage
from stateward.agents.dialer import WebSocketDialer
from stateward.agents.messages import (
    ENDED, FAILED, AgentOrder, AgentReport, Existing, Hello, InventoryItem, OrderAction, Welcome,
)  # fmt: skip
from stateward.agents.self_upgrade import NoUpgrade
from stateward.agents.site import AgentSite, ReportProgress
from stateward.engine import ExternalReport
from stateward.lifecycle import (
    AGENT, CLOCK, DAY, NEW, STABLE, TRANSITIONAL, USER, State, declare, failure, request, success, timeout,
)  # fmt: skip
from stateward.plugin import DomainPlugin, DomainRuntime, Engine, Kind, ProcessContext, Right, needs
from stateward.plugin.agent_socket import serve_agent
from stateward.store.records import JournalEntry, Key

SHOW = OrderAction.CREATE


class Board(State):
    """The states of a sign board."""

    CHANGING = "changing", TRANSITIONAL
    SHOWN = "shown", STABLE
    DARK = "dark", STABLE, "its agent could not show the text, or did not answer"


ROWS = (
    request(NEW, "create", USER, Board.CHANGING, Board.SHOWN, Board.DARK, DAY),
    request(Board.SHOWN | Board.DARK, "update", USER, Board.CHANGING, Board.SHOWN, Board.DARK, DAY),
    success(Board.CHANGING, ENDED[SHOW], AGENT, Board.SHOWN),
    failure(Board.CHANGING, FAILED[SHOW], AGENT, Board.DARK),
    timeout(Board.CHANGING, Board.DARK),
)


class BoardSpec(Struct):
    """What a board shows."""

    text: str


board = Kind(declare("sign.board", Board, ROWS, USER | AGENT | CLOCK), spec=BoardSpec, spec_actions=("update",))


class BoardHub(AgentHub):
    """The agents of sign boards in this process."""

    site_noun = "board"

    async def accept(self, connection: AgentConnection, hello: Hello) -> Welcome:
        """Accept an agent; the clock of the store numbers the connections."""
        self.supersede(connection.site)
        return Welcome(int(await self.engine.store.reader.time() * 1000), beat=self.silent_s / 3)

    async def sync(self, connection: AgentConnection, items: Sequence[InventoryItem]) -> SyncResult:
        """Accept any inventory: the order that is due, if any, replaces what a board shows."""
        return SyncResult()

    async def on_synced(self, connection: AgentConnection) -> None:
        """Send the order that is due."""
        await self.send_due(connection.site)

    async def on_message(self, connection: AgentConnection, message: OtherMessage) -> None:
        """Record that an order has ended; the engine rejects reports about former operations."""
        found = await self.engine.store.reader.object(connection.site)
        if isinstance(message, AgentReport) and message.event in (ENDED[SHOW], FAILED[SHOW]) and found and found.op:
            about = *connection.site, found.op, message.operation, message.event, AGENT
            await self.engine.report(ExternalReport(*about, error=message.error or None))

    async def record_disconnect(self, lost: ConnectionId) -> None:
        """Do nothing: a board without a connection shows what it shows."""

    def on_entries(self, entries: Sequence[JournalEntry]) -> None:
        """Send an order for each board that is to change."""
        for entry in entries:
            if entry.kind == board.name and entry.target == Board.CHANGING:
                self.start_task(self.send_due(Key(entry.ns, entry.object)))

    async def resend(self) -> None:
        """Send orders again that were not answered."""
        for site in list(self.connections):
            self.start_task(self.send_due(site, self.resend_s))

    async def send_due(self, site: Key, patience: float = float("inf")) -> None:
        """Send the order that is due, unless it was sent less than `patience` seconds ago."""
        found, connection = await self.engine.store.reader.object(site), self.serving_connection(site)
        if found and found.op and connection:
            numbers = found.generation, found.generation, connection.notify
            await connection.send_order(AgentOrder(SHOW, *numbers, found.id, spec=found.spec or ""), patience)


class SignRuntime(DomainRuntime):
    """The domain in a process."""

    def bind_engine(self, engine: Engine) -> None:
        """Make the hub."""
        self.hub = BoardHub(engine, ConnectionError, Random(), silent_s=30.0, resend_s=5.0)

    @asynccontextmanager
    async def running(self, engine: Engine, *, works: bool) -> AsyncIterator[None]:
        """Serve the agents."""
        async with self.hub.running():
            yield

    @cached_property
    def routes(self) -> Sequence[ControllerRouterHandler]:
        """The WebSocket of the agents; a token of the role `agent` names its board: `--ns NAMESPACE:BOARD`."""

        @websocket("/api/v1/sign/agents/{space:str}/{name:str}", opt=needs(Right.REPORT))
        async def connect(socket: WebSocket[Any, Any, Any], space: str, name: str) -> None:
            await serve_agent(socket, self.hub, Key(space, name))

        return [connect]


def create_runtime(context: ProcessContext) -> DomainRuntime:
    """Create the domain's part of a process."""
    return SignRuntime([board])


domain = DomainPlugin("sign", lifecycles=(board.lifecycle,), about="sign boards", create=create_runtime)


class Display(AgentSite):
    """The board itself, on the side of the agent: here a file, with the generation and the text."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def observe(self) -> Mapping[str, Existing]:
        """Return the generation that is shown."""
        if not self._file.exists():
            return {}
        name, generation, _ = self._file.read_text().split(maxsplit=2)
        return {name: Existing(int(generation))}

    async def execute(self, order: AgentOrder, report_progress: ReportProgress) -> None:
        """Show a text; the agent may be killed at any point, so the file is replaced at once."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{order.name} {order.generation} {msgspec.json.decode(order.spec, type=BoardSpec).text}\n")
        new.replace(self._file)

    async def close(self) -> None:
        """Do nothing: the board keeps its text."""


async def run_agent(name: str, file: str, token_file: str, server: str) -> None:
    """Run the agent of a board."""
    token = Path(token_file).read_text().strip()
    dialer = WebSocketDialer([server], "/api/v1/sign/agents", "default", name, token, Random())
    await Agent(Display(Path(file)), dialer, "1.0", NoUpgrade()).run_until_stopped()


if __name__ == "__main__":
    asyncio.run(run_agent(*sys.argv[1:]))
