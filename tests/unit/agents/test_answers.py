"""Logs and commands over an agent's connection: requests, answers, limits, lost connections."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.agents import answers as agent_answers
from stateward.agents.agent_requests import MAX_WAITING, AgentRequests
from stateward.agents.answers import MAX_REQUESTS, SiteAnswers
from stateward.agents.connection import AgentConnection
from stateward.agents.messages import (
    MAX_ANSWER_CHARS,
    Answer,
    AnswerPiece,
    CommandAnswer,
    CommandRequest,
    LogAnswer,
    LogRequest,
    RequestCancelled,
    answer_pieces,
    encode,
    read_answer,
    read_controller,
)
from stateward.agents.simulation import SimulatedSite
from stateward.agents.site import SiteCommandResult
from stateward.domains.edge.errors import AgentCannotAnswer
from stateward.workloads.log_files import empty_long_log, parse_cursor, read_part
from tests.waiting import until

# --- logs in files ---------------------------------------------------------------------------------------------------


def link_to_another(log: Path) -> None:
    """Make a log a second name of a file."""
    (log.parent / "another").write_text("for the agent only")
    log.hardlink_to(log.parent / "another")


@pytest.mark.parametrize(
    ("content", "after", "most", "text", "end"),
    [
        #  content       after   most  text         end
        (b"one\ntwo\n",  "",     100,  "one\ntwo\n", "8"),
        (b"one\ntwo\n",  "",     4,    "two\n",      "8"),
        (b"one\ntwo\n",  "4",    100,  "two\n",      "8"),
        (b"one\ntwo\n",  "0",    4,    "one\n",      "4"),
        (b"one\ntwo\n",  "8",    100,  "",           "8"),
        (b"new\n",       "8",    100,  "new\n",      "4"),  # it has become shorter
        (b"",            "",     100,  "",           "0"),
        (b"\xff\n",      "",     100,  "\ufffd\n",   "2"),
    ],
)  # fmt: skip
def test_a_part_of_a_log_is_read_with_the_cursor_of_the_next(
    tmp_path: Path, content: bytes, after: str, most: int, text: str, end: str
) -> None:
    (tmp_path / "log").write_bytes(content)
    assert read_text(tmp_path / "log", after, most) == (text, end)


def read_text(log: Path, after: str, most: int) -> tuple[str, str]:
    data, end = read_part(log, log.with_suffix(".old"), parse_cursor(after), most)
    return data.decode(errors="replace"), str(end)


def test_a_log_that_is_too_long_is_emptied_while_its_app_writes_and_its_reader_misses_nothing(tmp_path: Path) -> None:
    long, short = tmp_path / "long", tmp_path / "short"
    with long.open("ab", buffering=0) as log:
        log.write(b"one\ntwo\n")
        short.write_bytes(b"one\n")
        assert read_text(long, "", 4) == ("two\n", "8")
        log.write(b"three\nfour\n")
        for file in (long, short, tmp_path / "none"):
            empty_long_log(file, file.with_suffix(".old"), 10)
        assert {one.name: one.stat().st_size for one in tmp_path.iterdir()} == {"long": 0, "long.old": 19, "short": 4}
        log.write(b"five\n")
        assert read_text(long, "8", 6) == ("three\n", "14")
        assert read_text(long, "14", 100) == ("four\n", "0")
        assert read_text(long, "0", 100) == ("five\n", "5")
        assert read_text(long, "19", 100) == ("five\n", "5")


def test_of_a_log_that_an_app_makes_endless_only_the_end_is_kept_at_its_offset(tmp_path: Path) -> None:
    log, old = tmp_path / "log", tmp_path / "old"
    with log.open("wb") as stream:
        stream.truncate(1 << 40)
        stream.seek(1 << 40)
        stream.write(b"end\n")
    empty_long_log(log, old, 1000)
    assert log.stat().st_size == 0
    assert old.stat().st_blocks * 512 <= 10_000
    assert read_part(log, old, 1 << 40, 100) == (b"end\n", 0)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda log: log.symlink_to("/etc/passwd"), link_to_another])
def test_what_an_app_puts_in_the_place_of_its_log_is_neither_read_nor_emptied(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    log, old = tmp_path / "log", tmp_path / "old"
    make(log)
    with pytest.raises(OSError):  # noqa: PT011 - each has its own
        read_part(log, old, None, 100)
    with pytest.raises(OSError):  # noqa: PT011 - as above
        empty_long_log(log, old, 0)
    assert not old.exists()


@pytest.mark.parametrize("cursor", ["half", "-1", "1; id", "$(id)", "9" * 19, "\u0663"])
def test_only_the_cursor_of_an_earlier_answer_is_taken(cursor: str) -> None:
    with pytest.raises(ValueError, match="not the cursor"):
        parse_cursor(cursor)


# --- the agent's answers ---------------------------------------------------------------------------------------------


class SlowSite(SimulatedSite):
    """A site whose commands wait to be ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = 0

    async def run_command(self, request: CommandRequest) -> SiteCommandResult:
        if request.argv == ("much",):
            return SiteCommandResult(0, "\x1b" * (MAX_ANSWER_CHARS + 5), omitted=7)
        if request.argv == ("fail",):
            raise RuntimeError("secret")
        try:
            await asyncio.sleep(1000)
        finally:
            self.ended += 1
        raise AssertionError


async def test_every_request_has_one_answer_and_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_answers, "END_MARGIN_S", 0.0)
    sent: list[Answer] = []
    pieces: list[str] = []

    async def send(piece: AnswerPiece) -> None:
        assert len(encode(piece)) < 64 * 1024
        pieces.append(piece.text)
        if piece.is_last:
            sent.append(read_answer("".join(pieces)))
            pieces.clear()

    site = SlowSite()
    answers = SiteAnswers(site, send)
    await answers.begin(CommandRequest(1, 5, "c1:web", ("much",)))
    await answers.begin(CommandRequest(2, 5, "c1:web", ("fail",)))
    await answers.begin(CommandRequest(3, 5, "c1:web", ("wait",), within=0.01))
    while len(sent) < 3 or answers._tasks:  # the last task ends after its answer
        await asyncio.sleep(0.01)
    much, failed, late = sorted(sent, key=lambda one: one.request)
    assert isinstance(much, CommandAnswer)
    assert (len(much.written), much.omitted) == (MAX_ANSWER_CHARS, 12)
    assert (failed.error, late.error) == ("RuntimeError", "it took too long, and was ended")
    for number in range(MAX_REQUESTS):
        await answers.begin(CommandRequest(10 + number, 5, "c1:web", ("wait",)))
    await answers.begin(LogRequest(99, 5, "c1:web"))
    assert sent[-1] == LogAnswer(99, 5, error=f"the agent works on {MAX_REQUESTS} requests already")
    await asyncio.sleep(0)
    answers.cancel(RequestCancelled(10, 5))
    answers.cancel(RequestCancelled(77, 5))
    await until(lambda: site.ended >= 2)
    await answers.close()
    assert site.ended == MAX_REQUESTS + 1
    assert len(sent) == 4


# --- the controller's requests ---------------------------------------------------------------------------------------


class ListeningSocket:
    """The controller's end of a connection that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[object] = []

    async def receive_text(self) -> str:
        raise AssertionError

    async def send_text(self, data: bytes) -> None:
        self.sent.append(read_controller(data))

    async def close(self, code: int, reason: str) -> None: ...


def open_connection(*, answers: bool = True) -> tuple[AgentConnection, ListeningSocket]:
    socket = ListeningSocket()
    connection = AgentConnection(socket, "lab", "munich", lambda: 0.0)
    connection.notify, connection.answers = 5, answers
    return connection, socket


def give(requests: AgentRequests, connection: AgentConnection, answer: Answer) -> None:
    for piece in answer_pieces(answer):
        requests.on_answer(connection, piece)


async def test_an_answer_reaches_only_the_caller_that_waits_on_its_connection() -> None:
    requests = AgentRequests(AgentCannotAnswer)
    connection, socket = open_connection()
    impostor, _ = open_connection()
    waiting = asyncio.create_task(requests.run_command(connection, "c1:web", ("id",), "", 5.0))
    await asyncio.sleep(0)
    assert socket.sent == [CommandRequest(1, 5, "c1:web", ("id",), "", 5.0)]
    for who, answer in (
        (impostor, CommandAnswer(1, 5, 0, "forged")),
        (connection, CommandAnswer(1, 4, 0, "of an older connection")),
        (connection, CommandAnswer(2, 5, 0, "to nobody")),
        (connection, CommandAnswer(1, 5, 0, "true")),
        (connection, CommandAnswer(1, 5, 0, "twice")),
    ):
        give(requests, who, answer)
    assert (await waiting).written == "true"
    wrong = asyncio.create_task(requests.read_log(connection, "c1:web", "", "", 9))
    await asyncio.sleep(0)
    give(requests, connection, CommandAnswer(2, 5, 0))
    with pytest.raises(AgentCannotAnswer, match="another request"):
        await wrong


async def test_a_lost_connection_and_a_caller_that_leaves_end_a_request() -> None:
    requests = AgentRequests(AgentCannotAnswer)
    connection, socket = open_connection()
    lost = asyncio.create_task(requests.run_command(connection, "c1:web", ("id",), "", 5.0))
    await asyncio.sleep(0)
    requests.on_closed(connection)
    with pytest.raises(AgentCannotAnswer, match="may have run or not"):
        await lost
    left = asyncio.create_task(requests.run_command(connection, "c1:web", ("id",), "", 5.0))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    assert socket.sent[-1] == RequestCancelled(2, 5)


@pytest.mark.parametrize(("text", "is_last", "number", "why"), [("x", False, 501, "no end"), ("{", True, 1, "be read")])
async def test_an_answer_that_cannot_be_one_is_told(text: str, is_last: bool, number: int, why: str) -> None:
    requests = AgentRequests(AgentCannotAnswer)
    connection, _ = open_connection()
    waiting = asyncio.create_task(requests.read_log(connection, "c1:web", "", "", 9))
    await asyncio.sleep(0)
    for _ in range(number):
        requests.on_answer(connection, AnswerPiece(1, 5, text, is_last))
    with pytest.raises(AgentCannotAnswer, match=why):
        await waiting


async def test_agents_that_are_too_old_or_too_busy_are_not_asked() -> None:
    requests = AgentRequests(AgentCannotAnswer)
    old, socket = open_connection(answers=False)
    with pytest.raises(AgentCannotAnswer, match="version"):
        await requests.read_log(old, "c1:web", "", "", 9)
    assert socket.sent == []
    busy, _ = open_connection()
    waiting = [asyncio.create_task(requests.read_log(busy, "c1:web", "", "", 9)) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(AgentCannotAnswer, match="already"):
        await requests.read_log(busy, "c1:web", "", "", 9)
    requests.on_closed(busy)
    assert all(isinstance(one, AgentCannotAnswer) for one in await asyncio.gather(*waiting, return_exceptions=True))
