"""The raw limit of PostgreSQL: each step of a batch is one statement, which is a transaction by itself."""

import asyncio
from collections.abc import Iterator
from time import time

import asyncpg

from bench.engine.bare.rows import BEGUN, FIRST, OVER, OWNER, WITHIN, Pairs, batches, lines, operations, work
from bench.engine.databases import SCHEMA, switch_off
from bench.engine.lamps import NS, Lamp
from stateward.store.postgres.connections import writer_settings
from stateward.store.records import Status

MOVE = """
UPDATE objects o SET state = $2, since = $3, version = o.version + 1, op = r.op
FROM unnest($1::work[]) r WHERE o.ns = r.ns AND o.id = r.object
"""
REQUEST = f"""
WITH moved AS ({MOVE}), accepted AS (
    INSERT INTO operations SELECT * FROM unnest($4::operations[])
), enqueued AS (
    INSERT INTO work SELECT * FROM unnest($1::work[])
)
INSERT INTO journal SELECT * FROM unnest($5::journal[])
"""
CLAIM = """
UPDATE work w SET owner = $2, epoch = w.epoch + 1, attempts = w.attempts + 1, deadline = $3
FROM unnest($1::row_key[]) r WHERE w.ns = r.ns AND w.op = r.id
"""
FINISH = """
WITH moved AS (
    UPDATE objects o SET state = $3, since = $4, version = o.version + 1, op = NULL
    FROM unnest($1::row_key[]) r WHERE o.ns = r.ns AND o.id = r.id
), ended AS (
    UPDATE operations o SET status = $5, attempts = 1, ended = $4
    FROM unnest($2::row_key[]) r WHERE o.ns = r.ns AND o.id = r.id
), gone AS (
    DELETE FROM work w USING unnest($2::row_key[]) r WHERE w.ns = r.ns AND w.op = r.id
)
INSERT INTO journal SELECT * FROM unnest($6::journal[])
"""
CONNECTIONS = 3


class Actions:
    """Actions in batches of a size, on any of the stored lamps, and on several connections at once."""

    def __init__(self, dsn: str, size: int, stored: int) -> None:
        self._dsn, self._size, self._stored = dsn, size, stored
        self._seq = self._line = FIRST

    async def open(self) -> None:
        settings = {"search_path": SCHEMA, **writer_settings(60.0)}
        self._connections = [await asyncpg.connect(self._dsn, server_settings=settings) for _ in range(CONNECTIONS)]

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    async def run(self, amount: int) -> None:
        left = iter(batches(amount, self._size, self._stored))
        await asyncio.gather(*(self._work(connection, left) for connection in self._connections))

    async def tidy(self) -> None: ...

    async def _work(self, connection: asyncpg.Connection, left: Iterator[Pairs]) -> None:
        for pairs in left:
            await self._request(connection, pairs)
            ops = [(NS, op) for _, op in pairs]
            await connection.execute(CLAIM, ops, OWNER, time() + WITHIN)
            lamps, over = [(NS, name) for name, _ in pairs], lines(OVER, pairs, self._lines(pairs))
            await connection.execute(FINISH, lamps, ops, Lamp.OFF.word, time(), Status.SUCCEEDED.value, over)

    async def _request(self, connection: asyncpg.Connection, pairs: Pairs) -> None:
        queued, begun = work(pairs, self._seq), lines(BEGUN, pairs, self._lines(pairs))
        self._seq += len(pairs)
        await connection.execute(REQUEST, queued, Lamp.FLASHING.word, time(), operations(pairs), begun)

    def _lines(self, pairs: Pairs) -> int:
        first, self._line = self._line, self._line + len(pairs)
        return first


class Group(Actions):
    """The request of one action on all lamps, in one batch."""

    async def run(self, amount: int) -> None:
        (pairs,) = batches(amount, amount, self._stored)
        await self._request(self._connections[0], pairs)

    async def tidy(self) -> None:
        await switch_off(self._dsn)


class Objects(Group):
    """Of that, nothing but the change of the lamps themselves."""

    async def _request(self, connection: asyncpg.Connection, pairs: Pairs) -> None:
        await connection.execute(MOVE, work(pairs, 1), Lamp.FLASHING.word, time())
