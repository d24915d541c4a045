"""Notifications of commits: own ones at once, those of others over a connection that is reopened after a loss."""

import asyncio
import os
import signal

from stateward.store.changes import Changes
from stateward.store.port import Tx
from stateward.store.postgres import PostgresStore
from stateward.store.postgres.listener import decode_topics, encode_topics
from stateward.store.topics import ALL_TOPICS, Topic
from tests.contract.samples import a_timer, an_entry
from tests.integration.postgres_helpers import OF_THE_STORE, in_loop, kill, looking_at, opened
from tests.servers import PostgresServer

LISTENING = "query LIKE 'LISTEN%'"
PINGED = "query = 'SELECT 1'"


class TopicRecorder:
    """Keeps what was heard, and waits for more."""

    def __init__(self, store: PostgresStore) -> None:
        self.heard: asyncio.Queue[Topic] = asyncio.Queue()
        self.stop = store.subscribe(self.heard.put_nowait)


async def write_a_line(tx: Tx) -> None:
    await tx.apply(Changes(journal=[an_entry("a")]))


async def set_a_timer(tx: Tx) -> None:
    await tx.apply(Changes(timers=[a_timer("t", 5.0)], fences_running_work=True))


@in_loop
async def test_a_commit_is_heard_once_here_and_once_there(postgres_dsn: str) -> None:
    async with opened(postgres_dsn) as one, opened(postgres_dsn) as other:
        here, there = TopicRecorder(one), TopicRecorder(other)
        await one.transact(write_a_line)
        await other.transact(set_a_timer)
        for ear in (here, there):
            assert {await ear.heard.get(), await ear.heard.get()} == {Topic.JOURNAL, Topic.TIMER | Topic.FENCE}
            assert ear.heard.empty()


@in_loop
async def test_what_is_rolled_back_is_not_heard(postgres_dsn: str) -> None:
    async def give_up(tx: Tx) -> None:
        await set_a_timer(tx)
        raise LookupError

    async with opened(postgres_dsn) as one, opened(postgres_dsn) as other:
        there = TopicRecorder(other)
        await asyncio.gather(one.transact(give_up), return_exceptions=True)
        await one.transact(write_a_line)
        assert await there.heard.get() == Topic.JOURNAL


@in_loop
async def test_who_has_unsubscribed_hears_nothing(postgres_dsn: str) -> None:
    async with opened(postgres_dsn) as one, opened(postgres_dsn) as other:
        deaf, hearing = TopicRecorder(other), TopicRecorder(other)
        deaf.stop()
        deaf.stop()
        await one.transact(write_a_line)
        await hearing.heard.get()
        assert deaf.heard.empty()


@in_loop
async def test_a_lost_connection_is_opened_again_and_everything_is_reported(postgres_dsn: str) -> None:
    async with opened(postgres_dsn) as one, opened(postgres_dsn) as other, looking_at(postgres_dsn) as connection:
        here, there = TopicRecorder(one), TopicRecorder(other)
        assert await kill(connection, LISTENING) == 2
        assert [await here.heard.get(), await there.heard.get()] == [ALL_TOPICS, ALL_TOPICS]
        await one.transact(write_a_line)
        assert await there.heard.get() == Topic.JOURNAL


@in_loop
async def test_commits_are_heard_again_after_the_server_has_restarted(
    postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    async with opened(postgres_dsn) as one, opened(postgres_dsn) as other:
        there = TopicRecorder(other)
        await asyncio.to_thread(postgres_server.restart, "immediate")
        assert await there.heard.get() == ALL_TOPICS
        await one.transact(write_a_line)
        assert await there.heard.get() == Topic.JOURNAL


@in_loop
async def test_a_connection_that_sends_no_heartbeat_is_replaced(postgres_dsn: str) -> None:
    async with opened(postgres_dsn, ping_interval_s=0.1) as store, looking_at(postgres_dsn) as connection:
        there = TopicRecorder(store)
        whose = f"{OF_THE_STORE} AND ({LISTENING} OR {PINGED})"  # the last statement of the connection that listens
        pid = await connection.fetchval(f"SELECT pid FROM pg_stat_activity WHERE {whose}")
        os.kill(pid, signal.SIGSTOP)
        try:
            assert await there.heard.get() == ALL_TOPICS
        finally:
            os.kill(pid, signal.SIGCONT)


def test_topics_survive_the_wire_and_what_cannot_be_read_may_be_anything() -> None:
    assert decode_topics(encode_topics(Topic.WORK | Topic.FENCE, "me")) == (Topic.WORK | Topic.FENCE, "me")
    assert decode_topics("hello world") == (ALL_TOPICS, "world")
    assert decode_topics("99 me") == (ALL_TOPICS, "me")
