"""A process that is started before its database waits for it."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.config import Config
from stateward.server.database_wait import wait_for_database
from stateward.store.errors import Unavailable, WrongSchema
from stateward.store.sqlite import SqliteStore
from stateward.testing.virtual_loop import VirtualLoop

CONFIG = Config(database="postgresql://ann:hunter2@db/x")


async def nothing() -> None: ...


class SlowToStart(SqliteStore):
    """A database that accepts connections only after some seconds."""

    def __init__(self, down_s: float, then: Exception | None = None) -> None:
        super().__init__(":memory:")
        self._down_s, self._then = down_s, then
        self.is_open = False

    async def open(self) -> None:
        if asyncio.get_running_loop().time() < self._down_s:
            raise Unavailable("connection refused by postgresql://ann:hunter2@db/x")
        if self._then is not None:
            raise self._then
        self.is_open = True

    async def close(self) -> None:
        self.is_open = False


def run(course: Coroutine[Any, Any, None]) -> float:
    """Run a course on a virtual clock; returns how long it took."""
    loop = VirtualLoop()
    try:
        began = loop.time()
        loop.run_until_complete(course)
        return loop.time() - began
    finally:
        loop.close()


def test_a_process_waits_for_its_database_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    store = SlowToStart(down_s=20)
    with caplog.at_level(logging.WARNING):
        assert 20 <= run(wait_for_database(CONFIG, lambda _: store, nothing)) < 30
    assert "the database is not available: connection refused" in caplog.text
    assert "trying again for up to 60 s (setting wait_for_database)" in caplog.text
    assert "hunter2" not in caplog.text
    assert not store.is_open


def test_the_wait_for_a_database_ends_after_the_configured_time() -> None:
    with pytest.raises(Unavailable):
        run(wait_for_database(replace(CONFIG, wait_for_database=10), lambda _: SlowToStart(down_s=11), nothing))
    with pytest.raises(Unavailable):
        run(wait_for_database(replace(CONFIG, wait_for_database=0), lambda _: SlowToStart(down_s=1), nothing))


def test_a_database_that_cannot_be_used_is_not_waited_for() -> None:
    with pytest.raises(WrongSchema):
        run(wait_for_database(CONFIG, lambda _: SlowToStart(down_s=0, then=WrongSchema("it is new")), nothing))


def test_a_database_that_goes_away_again_while_a_process_starts_is_waited_for() -> None:
    attempts: list[float] = []

    async def start() -> None:
        attempts.append(asyncio.get_running_loop().time())
        if len(attempts) == 1:
            raise Unavailable("connection lost")

    run(wait_for_database(CONFIG, lambda _: SlowToStart(down_s=2), start))
    assert len(attempts) == 2
    with pytest.raises(Unavailable):
        run(wait_for_database(replace(CONFIG, wait_for_database=0), lambda _: SlowToStart(down_s=0), lost))


async def lost() -> None:
    raise Unavailable("connection lost")
