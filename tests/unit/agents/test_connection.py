"""The controller's end of a connection whose peer is lost at any moment."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from stateward.agents import connection as lines
from stateward.agents.agent_hub import AgentHub
from stateward.agents.connection import (
    CONNECTION_LOST,
    MESSAGE_BURST,
    MESSAGES_PER_S,
    NOT_READING,
    REJECTION_COST,
    AgentConnection,
    Disconnected,
    MessageRateLimit,
)
from stateward.agents.messages import AnswerPiece, FromAgent, Goodbye, Heartbeat, Hello, InventoryEnd, Welcome, encode


class Socket:
    """A WebSocket whose peer sends some messages and reads some; then the connection is lost."""

    def __init__(self, *messages: FromAgent, reads: int = 0, silent: bool = False) -> None:
        self._messages, self._reads, self._silent = list(messages), reads, silent
        self.closed: list[str] = []

    async def receive_text(self) -> str:
        if not self._messages:
            raise OSError("the peer is lost")
        return encode(self._messages.pop(0)).decode()

    async def send_text(self, data: bytes) -> None:
        self._reads -= 1
        if self._reads < 0:
            if self._silent:
                await asyncio.Event().wait()
            raise OSError("the peer is lost")

    async def close(self, code: int, reason: str) -> None:
        self.closed.append(f"{code} {reason}")
        if not self._silent:
            raise RuntimeError("the connection is closed already")


class RecordingHandler:
    """Lets everybody in, or nobody."""

    def __init__(self, answer: Welcome | Goodbye) -> None:
        self._answer = answer
        self.left_by: list[int] = []

    async def on_hello(self, connection: AgentConnection, hello: Hello) -> Welcome | Goodbye:
        connection.notify = 7
        return self._answer

    async def on_heartbeat(self, connection: AgentConnection) -> None:
        pass

    async def on_inventory(self, connection: AgentConnection) -> None:
        connection.is_synced = True

    async def on_message(self, connection: AgentConnection, message: Any) -> None: ...

    def on_answer(self, connection: AgentConnection, piece: AnswerPiece) -> None: ...

    async def on_failure(self, connection: AgentConnection, why: Disconnected) -> None: ...

    async def on_closed(self, connection: AgentConnection) -> None:
        self.left_by.append(connection.notify)


def connection(socket: Socket) -> AgentConnection:
    return AgentConnection(socket, "lab", "munich", lambda: 0.0)


@pytest.mark.parametrize("answer", [Welcome(7), Goodbye("not now")])
async def test_a_peer_that_is_lost_before_the_answer_to_its_hello_has_left(answer: Welcome | Goodbye) -> None:
    handler = RecordingHandler(answer)
    with pytest.raises(Disconnected, match=CONNECTION_LOST):
        await connection(Socket(Hello("1.0"))).serve(handler)
    assert handler.left_by == [7]


@pytest.mark.parametrize("messages", [(), (InventoryEnd(0, 7),), (InventoryEnd(0, 7), Heartbeat(7))])
async def test_a_peer_that_is_lost_later_has_left_too(messages: tuple[FromAgent, ...]) -> None:
    handler = RecordingHandler(Welcome(7))
    with pytest.raises(Disconnected, match=CONNECTION_LOST):
        await connection(Socket(Hello("1.0"), *messages, reads=1)).serve(handler)
    assert handler.left_by == [7]


class Clock:
    """A clock that goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.pauses = 0.0, list[float]()

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def test_an_allowance_gives_a_burst_at_once_and_then_its_rate() -> None:
    clock = Clock()
    rate_limit = MessageRateLimit(clock, rate=2.0, burst=4.0)
    assert [rate_limit.spend() for _ in range(6)] == [0.0, 0.0, 0.0, 0.0, 0.5, 1.0]
    clock.now = 1.0
    assert rate_limit.spend() == 0.5, "each further message waits for its turn"
    clock.now = 100.0
    assert [rate_limit.spend() for _ in range(5)] == [0.0, 0.0, 0.0, 0.0, 0.5], "a pause saves up one burst, not more"


def test_a_rejected_message_costs_as_much_as_many() -> None:
    clock = Clock()
    rate_limit = MessageRateLimit(clock)
    assert max(rate_limit.spend(REJECTION_COST) for _ in range(int(MESSAGE_BURST / REJECTION_COST))) == pytest.approx(
        0.0
    )
    assert rate_limit.spend(REJECTION_COST) == pytest.approx(REJECTION_COST / MESSAGES_PER_S)


async def test_an_agent_that_says_too_much_is_heard_more_slowly_and_not_sent_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr("stateward.agents.connection.asyncio.sleep", clock.sleep)
    socket = Socket(Hello("1.0"), InventoryEnd(0, 7), *[Heartbeat(7)] * 9, reads=100)
    heard = AgentConnection(socket, "lab", "munich", clock)
    heard.rate_limit = MessageRateLimit(clock, rate=2.0, burst=4.0)
    with pytest.raises(Disconnected, match=CONNECTION_LOST):
        await heard.serve(RecordingHandler(Welcome(7)))
    assert clock.pauses == [0.5] * 6
    assert socket.closed == []


async def test_nothing_is_sent_over_a_lost_connection_and_it_is_not_closed_again() -> None:
    socket = Socket(reads=0)
    lost = connection(socket)
    for _ in range(2):
        with pytest.raises(Disconnected, match=CONNECTION_LOST):
            await lost.send(Heartbeat(7))
    await lost.close("dial again")
    assert socket.closed == []


async def test_a_peer_that_does_not_read_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "SEND_TIMEOUT_S", 0.01)
    socket = Socket(silent=True)
    stuck = connection(socket)
    with pytest.raises(Disconnected, match=NOT_READING):
        await stuck.send(Heartbeat(7))
    with pytest.raises(Disconnected, match=CONNECTION_LOST):
        await stuck.send(Heartbeat(7))
    assert socket.closed == [f"1008 {NOT_READING}"]


async def test_the_end_of_a_hub_waits_for_what_its_agents_have_submitted() -> None:
    """Its owner closes the store next."""

    async def transact(run: Callable[[Any], Awaitable[list[str]]]) -> list[str]:
        for _ in range(100):
            await asyncio.sleep(0)
        return await run(None)

    async def store_reports(_tx: object, reports: Sequence[str]) -> list[str]:
        return [f"{report} is stored" for report in reports]

    hub_type: Any = type("Hub", (AgentHub,), dict.fromkeys(AgentHub.__abstractmethods__))
    engine = SimpleNamespace(store=SimpleNamespace(transact=transact))
    hub = hub_type(engine, Exception, Random(1), silent_s=60.0, resend_s=60.0)
    report = hub.batcher(store_reports).submit("a report")
    await hub.close()
    assert report.done()
    assert report.result() == "a report is stored"
