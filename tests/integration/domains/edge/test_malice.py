"""An agent that means harm: refused, journaled, counted; the controller stays well, and other cloudlets are untouched.

It holds the token of one cloudlet, munich, and speaks the protocol over bare WebSockets to a real server. Beside it an
honest agent serves berlin over one connection, from the first test to the last.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from stateward.agents.measure_messages import Load, Measures
from stateward.agents.messages import (
    AgentOrder,
    AgentReport,
    Heartbeat,
    Hello,
    InventoryEnd,
    InventoryItem,
    ProgressMessage,
    Welcome,
    encode,
)
from tests.integration.server.server_processes import Served, run
from tests.servers import PostgresServer
from tests.waiting import wait_until

NS, EDGE = "lab", "/api/v1/edge/ns/lab"
PATIENT = 60.0
QUIET = {"STATEWARD_EDGE_BEAT": "600", "STATEWARD_RATE": "100000", "STATEWARD_ONLY": "edge"}
SOME = AgentReport("ready", 1, 1, 1, "c9")


class HostileHarness:
    """A server with an honest agent, and the connections of a hostile one."""

    def __init__(self, server: Served) -> None:
        self.server, self.client = server, server.client()
        self.tokens = {name: self._token(name) for name in ("munich", "berlin")}
        for name in self.tokens:
            assert self.client.post(f"{EDGE}/cloudlets", json={"name": name}).status_code == 202

    def _token(self, name: str) -> str:
        body = {"name": name, "role": "agent", "namespaces": [f"{NS}:{name}"]}
        return str(self.client.post("/api/v1/tokens", json=body).json()["token"])

    @contextmanager
    def dial(self, cloudlet: str = "munich", token: str | None = None) -> Iterator[ClientConnection]:
        """Connect."""
        url = f"{self.server.url.replace('http', 'ws')}/api/v1/edge/agents/{NS}/{cloudlet}"
        headers = {"Authorization": f"Bearer {token or self.tokens['munich']}"}
        with connect(url, additional_headers=headers, proxy=None, close_timeout=1) as found:
            yield found

    @contextmanager
    def connect_synced(self, cloudlet: str = "munich") -> Iterator[tuple[ClientConnection, int]]:
        """Connect as an agent with an empty inventory, and wait until the cloudlet is Ready."""
        with self.dial(cloudlet, self.tokens[cloudlet]) as line:
            line.send(encode(Hello("1.0")), text=True)
            notify = receive(line, Welcome).notify
            line.send(encode(InventoryEnd(0, notify)), text=True)
            self.until(lambda: self.get(f"/cloudlets/{cloudlet}")["state"] == "Ready")
            yield line, notify

    def get(self, path: str) -> Any:
        return self.client.get(f"{EDGE}{path}").json()

    def rejected(self) -> dict[str, int]:
        """Return what was counted."""
        found: dict[str, int] = self.get("/agents")["rejected"]
        return found

    def journal(self, object_: str) -> list[dict[str, Any]]:
        """Return the history of an object."""
        answer = self.client.get(f"/api/v1/ns/{NS}/objects/{object_}/history?limit=1000")
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["items"]
        return found

    def rejections(self, object_: str) -> list[str]:
        """Return the reasons of an agent's rejected messages, from the journal."""
        found = [one for one in self.journal(object_) if one["event"].startswith("rejected")]
        return [str(one["reason"]) for one in found if one["actor"] == "agent"]

    def until(self, condition: Any) -> None:
        wait_until(condition, explain=lambda: self.server.output)

    def assert_unharmed(self, honest: tuple[ClientConnection, int]) -> None:
        """Check that the server answers, and that the honest agent is still served over its connection."""
        line, notify = honest
        assert self.client.get("/readyz").status_code == 200
        line.send(encode(Heartbeat(notify)), text=True)
        assert receive(line, Heartbeat).notify == notify
        assert self.get("/cloudlets/berlin")["state"] == "Ready"
        assert self.rejections("berlin") == []
        assert "Traceback" not in self.server.output


def receive(line: ClientConnection, kind: Any) -> Any:
    """Return the next message, which must be of a type."""
    return msgspec.json.decode(line.recv(timeout=PATIENT), type=kind)


def close_of(line: ClientConnection) -> tuple[int, str]:
    """Return how the server closes a connection."""
    with suppress(ConnectionClosed):
        while True:
            line.recv(timeout=PATIENT)
    return line.close_code or 0, line.close_reason or ""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def harness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileHarness]:
    folder: Path = tmp_path_factory.mktemp("hostile") / "controller"
    environ = dict(QUIET)
    with ExitStack() as stack:
        if request.param == "postgres":
            postgres: PostgresServer = request.getfixturevalue("postgres_server")
            environ["STATEWARD_DATABASE"] = postgres.new_database()
            assert run("migrate", environ=environ).returncode == 0
        server = Served(folder, environ=environ)
        stack.callback(server.ended)
        stack.callback(server.process.kill)
        found = HostileHarness(server)
        stack.callback(found.client.close)
        yield found


@pytest.fixture(scope="module")
def honest(harness: HostileHarness) -> Iterator[tuple[ClientConnection, int]]:
    with harness.connect_synced("berlin") as found:
        yield found


# --- before the welcome ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["sw_0123456789ab_wrong", "x", "a" * 5000])
def test_a_wrong_token_is_refused_before_anything_is_said(harness: HostileHarness, honest: Any, token: str) -> None:
    with pytest.raises(InvalidStatus), harness.dial(token=token):
        pass
    harness.until(lambda: "status=401" in harness.server.output)
    harness.assert_unharmed(honest)


def test_a_token_of_another_cloudlet_opens_nothing_and_is_counted_and_audited(
    harness: HostileHarness, honest: Any
) -> None:
    before = len(harness.journal("berlin"))
    with harness.dial("berlin") as line:
        assert close_of(line) == (4403, "the token is not for this cloudlet")
    assert harness.rejected()["the token is not for this cloudlet"] >= 1
    harness.until(lambda: "refused: the token is not for this cloudlet" in harness.server.output)
    assert len(harness.journal("berlin")) == before
    harness.assert_unharmed(honest)


FIRST_MESSAGES: dict[str, str | bytes] = {
    "no JSON": "hm",
    "bytes": b"\x00\xff",
    "no text": b"\xff\xfe",
    "nested without an end": '{"type":"hello","version":"1","x":' + "[" * 30_000,
    "nested deeply": '{"type":"hello","version":"1","x":' + "[" * 30_000 + "]" * 30_000 + "}",
    "another word": encode(Heartbeat(1)).decode(),
    "a NUL in the version": encode(Hello("a\x00b")).decode(),
    "a version as long as a book": encode(Hello("v" * 60_000)).decode(),
    "a number that nothing holds": '{"type":"hello","version":"1","heir":' + "9" * 4_000 + "}",
    "a number below zero": '{"type":"hello","version":"1","heir":-1}',
}


@pytest.mark.parametrize("what", FIRST_MESSAGES)
def test_a_first_word_that_is_no_hello_is_the_last_and_is_journaled(
    harness: HostileHarness, honest: Any, what: str
) -> None:
    before = harness.rejected().get("the first message is not a hello", 0)
    with harness.dial() as line:
        line.send(FIRST_MESSAGES[what])
        assert close_of(line) == (1008, "the first message is not a hello")
    assert harness.rejected()["the first message is not a hello"] == before + 1
    assert harness.rejections("munich")[-1] == "the first message is not a hello"
    harness.assert_unharmed(honest)


def test_a_giant_frame_is_not_even_read(harness: HostileHarness, honest: Any) -> None:
    with harness.connect_synced() as (line, _):
        with suppress(ConnectionClosed):  # the server need not wait for the rest of it
            line.send("x" * 10_000_000)
        assert close_of(line)[0] in (1006, 1009)
    harness.assert_unharmed(honest)


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_who_says_nothing_is_sent_away_and_keeps_nobody_waiting(harness: HostileHarness, honest: Any) -> None:
    address = harness.server.url.removeprefix("http://").rsplit(":", 1)
    with ExitStack() as stack:
        for _ in range(200):  # heads that never end
            slow = stack.enter_context(socket.create_connection((address[0], int(address[1]))))
            slow.sendall(b"GET /api/v1/edge/agents/lab/munich HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        silent = [stack.enter_context(harness.dial()) for _ in range(20)]
        harness.assert_unharmed(honest)
        assert {close_of(line) for line in silent} == {(1008, "the first message is not a hello")}
        harness.assert_unharmed(honest)


# --- in the line -----------------------------------------------------------------------------------------------------

BAD_MESSAGES: dict[str, str | bytes] = {
    "no JSON": "hm",
    "bytes": b"\x00\xff",
    "nested deeply": '{"type":"beat","notify":1,"x":' + "[" * 30_000 + "]" * 30_000 + "}",
    "an unknown word": '{"type":"launch"}',
    "a NUL in a name": encode(AgentReport("ready", 1, 1, 1, "a\x00b")).decode(),
    "a NUL in an event": encode(AgentReport("re\x00ady", 1, 1, 1, "c1")).decode(),
    "a NUL in a text": encode(ProgressMessage("\x00", 1, 1, 1, "c1")).decode(),
    "a NUL in a load": encode(Measures(1, (Load("a\x00", 1),))).decode(),
    "a name as long as a book": encode(AgentReport("ready", 1, 1, 1, "n" * 60_000)).decode(),
    "a number that nothing holds": encode(InventoryItem(0, 10**30, True, 1, "c1")).decode(),
    "a hello again": encode(Hello("1.0")).decode(),
}


@pytest.mark.parametrize("what", BAD_MESSAGES)
def test_a_word_that_is_none_ends_the_connection_and_is_journaled(
    harness: HostileHarness, honest: Any, what: str
) -> None:
    before = sum(harness.rejected().values())
    with harness.connect_synced() as (line, _):
        line.send(BAD_MESSAGES[what])
        assert close_of(line)[0] == 1008
    assert sum(harness.rejected().values()) == before + 1
    assert harness.rejections("munich")[-1].startswith(("the message cannot be read", "it has said that before"))
    harness.assert_unharmed(honest)


def test_a_list_without_an_end_is_cut_off(harness: HostileHarness, honest: Any) -> None:
    with harness.dial() as line:
        line.send(encode(Hello("1.0")), text=True)
        notify = receive(line, Welcome).notify
        with suppress(ConnectionClosed):
            for number in range(1_000_000):
                line.send(encode(InventoryItem(0, 1, True, notify, f"thing{number}")), text=True)
        assert close_of(line) == (1008, "its list has no end")
    harness.assert_unharmed(honest)


@pytest.mark.parametrize(
    "word", [InventoryItem(0, 0, True, 0), ProgressMessage("done", 1, 1, 0), SOME], ids=lambda one: one.__class__
)
def test_a_word_about_nothing_that_is_known_changes_nothing_and_is_counted(
    harness: HostileHarness, honest: Any, word: Any
) -> None:
    before = sum(harness.rejected().values())
    with harness.connect_synced() as (line, notify):
        line.send(encode(msgspec.structs.replace(word, notify=notify)), text=True)
        line.send(encode(Heartbeat(notify)), text=True)
        assert receive(line, Heartbeat).notify == notify
    assert sum(harness.rejected().values()) == before + 1
    harness.assert_unharmed(honest)


def test_replayed_and_forged_words_do_not_count_and_the_true_one_does(harness: HostileHarness, honest: Any) -> None:
    with harness.connect_synced() as (line, notify):
        assert harness.client.post(f"{EDGE}/cloudlets/munich/clusterinsts", json={"name": "c1"}).status_code == 202
        order: AgentOrder = receive(line, AgentOrder)
        true = AgentReport("ready", order.operation, order.generation, notify, "c1")
        forged = [
            msgspec.structs.replace(true, operation=order.operation + 1),
            msgspec.structs.replace(true, operation=order.operation - 1),
            msgspec.structs.replace(true, generation=order.generation + 1),
            msgspec.structs.replace(true, generation=order.generation - 1),
            msgspec.structs.replace(true, notify=notify + 1),
            msgspec.structs.replace(true, notify=notify - 1),
            msgspec.structs.replace(true, event="undone"),
            msgspec.structs.replace(true, event="delete"),
        ]
        before = sum(harness.rejected().values())
        for word in forged:
            line.send(encode(word), text=True)
        harness.until(lambda: sum(harness.rejected().values()) == before + len(forged))
        assert harness.get("/cloudlets/munich/clusterinsts/c1")["state"] == "CreateRequested"
        line.send(encode(true), text=True)
        harness.until(lambda: harness.get("/cloudlets/munich/clusterinsts/c1")["state"] == "Ready")
        line.send(encode(true), text=True)  # the same again
        harness.until(lambda: sum(harness.rejected().values()) == before + len(forged) + 1)
    assert len(harness.rejections("munich:c1")) == len(forged) + 1
    harness.assert_unharmed(honest)


def test_a_flood_of_forged_words_is_heard_ever_more_slowly_and_holds_up_nobody(
    harness: HostileHarness, honest: Any
) -> None:
    before, begun = sum(harness.rejected().values()), time.monotonic()
    with harness.connect_synced() as (line, notify):
        for number in range(2_000):
            line.send(encode(AgentReport("ready", number, 1, notify, "c9")), text=True)
        harness.until(lambda: sum(harness.rejected().values()) >= before + 150)
        harness.assert_unharmed(honest)
        rejected = sum(harness.rejected().values()) - before
        assert rejected <= 200 + 5 * (time.monotonic() - begun) + 5
    harness.assert_unharmed(honest)


# --- at the stream, which is open to whoever connects ----------------------------------------------------------------

FIRST_MESSAGES_OF_READERS: dict[str, tuple[str | bytes, int]] = {
    "no JSON": ("hm", 4400),
    "bytes": (b"\x00", 4400),
    "nested deeply": ('{"ns":' + "[" * 30_000 + "]" * 30_000 + "}", 4400),
    "a number below zero": ('{"after":-1}', 4400),
    "no token": ("{}", 4401),
    "a token with a NUL": ('{"token":"sw_\\u0000_x"}', 4401),
    "a wrong token": ('{"token":"sw_0123456789ab_x"}', 4401),
}


@pytest.mark.parametrize("what", FIRST_MESSAGES_OF_READERS)
def test_a_reader_that_says_nothing_good_is_sent_away(harness: HostileHarness, honest: Any, what: str) -> None:
    said, code = FIRST_MESSAGES_OF_READERS[what]
    with connect(f"{harness.server.url.replace('http', 'ws')}/api/v1/stream", proxy=None, close_timeout=1) as line:
        line.send(said)
        assert close_of(line)[0] == code
    harness.assert_unharmed(honest)
