"""The raw limit of SQLite."""

from time import time

from bench.engine.bare.rows import BEGUN, FIRST, OVER, OWNER, WITHIN, Pairs, Rows, batches, lines, operations, work
from bench.engine.databases import switch_off
from bench.engine.lamps import NS, Lamp
from stateward.store.records import JournalEntry, Operation, Status, WorkItem
from stateward.store.sqlite.connections import SqliteSettings, open_writer


def _insert(table: str, record: type, *more: str) -> str:
    columns: tuple[str, ...] = record.__struct_fields__ + more  # type: ignore[attr-defined]
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


MOVE = "UPDATE objects SET state = ?, since = ?, version = version + 1, op = ? WHERE ns = ? AND id = ?"
ACCEPT = _insert("operations", Operation)
ENQUEUE = _insert("work", WorkItem, "delayed")
TAKE = "UPDATE work SET owner = ?, epoch = epoch + 1, attempts = attempts + 1, deadline = ? WHERE ns = ? AND op = ?"
END = "UPDATE operations SET status = ?, attempts = ?, ended = ? WHERE ns = ? AND id = ?"
DEQUEUE = "DELETE FROM work WHERE ns = ? AND op = ?"
JOURNAL = _insert("journal", JournalEntry)


class Actions:
    """Actions in batches of a size, on any of the stored lamps."""

    def __init__(self, path: str, size: int, stored: int) -> None:
        self._path, self._size, self._stored = path, size, stored
        self._db = open_writer(SqliteSettings(path))
        self._seq = self._line = FIRST

    async def open(self) -> None: ...

    async def close(self) -> None:
        self._db.close()

    async def run(self, amount: int) -> None:
        for pairs in batches(amount, self._size, self._stored):
            self._request(pairs)
            self._claim(pairs)
            self._finish(pairs)

    async def tidy(self) -> None: ...

    def _write(self, *orders: tuple[str, Rows]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        for statement, rows in orders:
            self._db.executemany(statement, rows)
        self._db.execute("COMMIT")

    def _request(self, pairs: Pairs) -> None:
        self._write(
            (MOVE, self._begun(pairs)),
            (ACCEPT, operations(pairs)),
            (ENQUEUE, work(pairs, self._seq)),
            (JOURNAL, lines(BEGUN, pairs, self._line)),
        )
        self._seq += len(pairs)
        self._line += len(pairs)

    def _begun(self, pairs: Pairs) -> Rows:
        now = time()
        return [(Lamp.FLASHING.word, now, op, NS, name) for name, op in pairs]

    def _claim(self, pairs: Pairs) -> None:
        deadline = time() + WITHIN
        self._write((TAKE, [(OWNER, deadline, NS, op) for _, op in pairs]))

    def _finish(self, pairs: Pairs) -> None:
        now = time()
        self._write(
            (MOVE, [(Lamp.OFF.word, now, None, NS, name) for name, _ in pairs]),
            (END, [(Status.SUCCEEDED.value, 1, now, NS, op) for _, op in pairs]),
            (DEQUEUE, [(NS, op) for _, op in pairs]),
            (JOURNAL, lines(OVER, pairs, self._line)),
        )
        self._line += len(pairs)


class Group(Actions):
    """The request of one action on all lamps, in one batch."""

    async def run(self, amount: int) -> None:
        (pairs,) = batches(amount, amount, self._stored)
        self._request(pairs)

    async def tidy(self) -> None:
        await switch_off(self._path)


class Objects(Group):
    """Of that, nothing but the change of the lamps themselves."""

    def _request(self, pairs: Pairs) -> None:
        self._write((MOVE, self._begun(pairs)))
