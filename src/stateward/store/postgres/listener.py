"""Notifications of commits by other processes: a connection with LISTEN, which is reopened when it is lost.

Notifications are lost while it is down, so all topics are reported after each reconnection. A connection can also die
silently (a cable, a firewall), so it is pinged regularly.
"""

import asyncio
from collections.abc import Callable
from hashlib import blake2b
from logging import getLogger
from random import Random
from secrets import token_hex
from zlib import crc32

from msgspec import Struct

from stateward.aio.supervise import cancel_tasks, supervise, wait_for_event
from stateward.store.errors import StoreError
from stateward.store.postgres.connections import BASE_SETTINGS, DatabaseAddress, DriverConnection, close_connection
from stateward.store.postgres.errors import DRIVER_ERRORS, translate_error
from stateward.store.records import Key
from stateward.store.topics import ALL_TOPICS, Topic


def encode_topics(topics: Topic, sender: str) -> str:
    """Return topics as the payload of a notification."""
    return f"{topics.value} {sender}"


MAX_TOPIC_DIGITS = 18


def decode_topics(payload: str) -> tuple[Topic, str]:
    """Return the topics and the sender of a payload; an unreadable one means all topics."""
    number, _, sender = payload.partition(" ")
    known = len(number) <= MAX_TOPIC_DIGITS and number.isdecimal() and int(number) in range(ALL_TOPICS.value + 1)
    return (Topic(int(number)) if known else ALL_TOPICS), sender


KEY_LOCKS = 256
"""How many advisory locks the keys of objects share; one transaction may lock hundreds of keys."""


class SchemaNames(Struct, frozen=True):
    """The notification channel and advisory locks of a schema, and the sender id of this process."""

    channel: str
    sender: str
    journal_lock: int
    migration_lock: int
    groups_seed: int
    keys_seed: int

    @classmethod
    def of(cls, schema: str) -> "SchemaNames":
        """Return the names of a schema."""
        locks = (
            int.from_bytes(blake2b(f"stateward/{schema}/{what}".encode(), digest_size=8).digest(), signed=True)
            for what in ("journal", "migration", "groups", "keys")
        )
        return cls(schema, token_hex(8), *locks)

    def key_lock(self, key: Key) -> int:
        """Return the advisory lock of a key; some keys share one, because a database has room for few locks."""
        return self.keys_seed ^ (crc32(f"{key.ns}/{key.id}".encode()) % KEY_LOCKS)


LOG = getLogger(__name__)
RECONNECT_MAX_S = 5.0


class Listener:
    """Reports commits of other processes."""

    def __init__(
        self,
        address: DatabaseAddress,
        names: SchemaNames,
        report: Callable[[Topic], None],
        ping_interval_s: float,
    ) -> None:
        self._address = address
        self._names = names
        self._report = report
        self._ping_interval_s = ping_interval_s
        self._random = Random()  # noqa: S311 - only spreads attempts
        self._connection: DriverConnection | None = None
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to listen; every commit after the return is reported."""
        self._connection = await self._listen()
        self._task = asyncio.create_task(supervise("stateward listener", self._watch, LOG))

    async def close(self) -> None:
        """Stop listening."""
        try:
            if self._task is not None:
                await cancel_tasks([self._task])  # does not swallow a cancellation of the caller
        finally:
            if self._connection is not None:
                await close_connection(self._connection)

    async def _watch(self) -> None:
        while True:
            await self._wait_until_lost()
            if self._connection is not None:
                self._connection.terminate()
                self._connection = None
            self._connection = await self._listen_again()
            self._report(ALL_TOPICS)

    async def _wait_until_lost(self) -> None:
        while not self._lost.is_set() and self._connection is not None:
            was_lost = await wait_for_event(self._lost, self._ping_interval_s)
            if not was_lost and not await self._is_alive(self._connection):
                return

    async def _is_alive(self, connection: DriverConnection) -> bool:
        try:
            await connection.execute("SELECT 1", timeout=self._ping_interval_s)
        except DRIVER_ERRORS:
            return False
        return True

    async def _listen_again(self) -> DriverConnection:
        pause = 0.05
        while True:
            try:
                return await self._listen()
            except StoreError as error:
                LOG.warning(
                    "listener cannot connect to the database, retrying: %s",
                    error,
                )
            await asyncio.sleep(pause * self._random.uniform(0.5, 1.0))
            pause = min(2 * pause, RECONNECT_MAX_S)

    async def _listen(self) -> DriverConnection:
        self._lost = lost = asyncio.Event()
        connection = await self._address.connect(BASE_SETTINGS)
        connection.add_termination_listener(lambda _: lost.set())
        try:
            await connection.add_listener(self._names.channel, self._on_notification)
        except BaseException as error:
            connection.terminate()
            if isinstance(error, DRIVER_ERRORS):
                raise translate_error(error) from error
            raise
        return connection

    def _on_notification(self, _connection: object, _pid: int, _channel: str, payload: str) -> None:
        about, sender = decode_topics(payload)
        if sender != self._names.sender:
            self._report(about)


class Poller:
    """Reports all topics periodically: for a pooler, which passes no notifications on."""

    def __init__(self, report: Callable[[Topic], None], every: float) -> None:
        self._report = report
        self._every = every
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to report."""
        self._task = asyncio.create_task(supervise("stateward poller", self._poll, LOG))

    async def close(self) -> None:
        """Stop reporting."""
        if self._task is not None:
            await cancel_tasks([self._task])

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            self._report(ALL_TOPICS)
