import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.sync.server import ServerConnection, serve

from stateward.client.api import ApiClient
from stateward.client.errors import NotOurs, Unreachable
from stateward.client.http import HttpConnection
from stateward.client.journal_stream import PAUSES, Closed, JournalSelection, _last, follow_journal
from stateward.client.session import Session
from stateward.client.target import Secret
from tests.unit.cli.sample_records import sample_entry


@given(st.integers(0, 10**12))
def test_the_newest_number_is_found_by_asking_what_follows(last: int) -> None:
    asked: list[int] = []

    def more_after(number: int) -> bool:
        asked.append(number)
        return number < last

    assert _last(more_after) == last
    assert len(asked) <= 2 * last.bit_length() + 2


def lines(*numbers: int) -> str:
    found = [sample_entry(seq=n, ns="a", object=f"o{n}") for n in numbers]
    return msgspec.json.encode({"lines": found, "seq": numbers[-1]}).decode()


class Streamer:
    """A server whose connections are played one after the other."""

    def __init__(self, *plays: Callable[[ServerConnection], None]) -> None:
        self.heard: list[Any] = []
        self.pauses: list[float] = []
        self._plays = list(plays)

    def serve(self, connection: ServerConnection) -> None:
        self.heard.append((connection.request, json.loads(connection.recv())))
        self._plays.pop(0)(connection)

    @contextmanager
    def session(self) -> Iterator[Session]:
        with serve(self.serve, "127.0.0.1", 0) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
            wire = HttpConnection(url, Secret("tok"), direct=True)
            try:
                yield Session(ApiClient(wire), "a", json=False, pause=self.pauses.append)
            finally:
                wire.close()
                server.shutdown()
                thread.join()


def test_a_broken_stream_goes_on_from_the_last_number_seen() -> None:
    def first(connection: ServerConnection) -> None:
        connection.send('{"snapshot": {"seq": 4, "objects": {}}}')
        connection.send(lines(5, 6))

    def second(connection: ServerConnection) -> None:
        connection.send(lines(7))

    streamer = Streamer(first, lambda connection: connection.close(4408, "too slow"), second)
    with streamer.session() as session:
        assert [line.seq for line in islice(follow_journal(session, JournalSelection(ns="a")), 3)] == [5, 6, 7]
    assert [word for _, word in streamer.heard] == [{"ns": ["a"]}, {"ns": ["a"], "after": 6}, {"ns": ["a"], "after": 6}]
    assert streamer.heard[0][0].headers["Authorization"] == "Bearer tok"
    assert streamer.pauses == list(PAUSES[:2])


def test_a_stream_that_cannot_be_had_back_is_given_up() -> None:
    streamer = Streamer(lambda connection: connection.send(lines(1)), *[lambda _: None] * 10)
    with streamer.session() as session, pytest.raises(Unreachable):
        list(follow_journal(session, JournalSelection(after=0)))
    assert streamer.pauses == list(PAUSES)


@pytest.mark.parametrize(("code", "exit_code"), [(4400, 2), (4401, 4), (4403, 4)])
def test_a_refused_stream_is_not_tried_again(code: int, exit_code: int) -> None:
    streamer = Streamer(lambda connection: connection.close(code, "not you"))
    with streamer.session() as session, pytest.raises(Closed, match="not you") as caught:
        list(follow_journal(session, JournalSelection()))
    assert caught.value.exit_code == exit_code
    assert streamer.pauses == []


def test_what_does_not_speak_as_our_server_does_is_told_apart() -> None:
    with Streamer(lambda connection: connection.send("hello")).session() as session, pytest.raises(NotOurs):
        list(follow_journal(session, JournalSelection()))
