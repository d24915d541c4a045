"""No statement of an adapter walks a table that grows, unless a reason is given: all methods are called, and each of
the statements that they send is explained.

What is walked must be so by a key, or by a number: a plan that reads a whole index, or all of a namespace, costs more
the larger the deployment is.
"""

import asyncio
import json
import re
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import pytest

from stateward.store import Changes, Ended, JournalFilter, Page, Reader, Selector, Store, Tx
from stateward.store.filters import (
    BY_STATE,
    OperationCursor,
    OperationFilter,
    SearchText,
    SortedPage,
    SortOrder,
)
from stateward.store.postgres import PostgresStore
from stateward.store.postgres.connections import DatabaseAddress
from stateward.store.records import Status
from stateward.store.retention import BEFORE_ALL_KEYS, JournalSpan, Retention
from stateward.store.sqlite import SqliteStore
from tests.contract.samples import (
    NS,
    a_key_record,
    a_lock,
    a_signal,
    a_step,
    a_timer,
    a_worker,
    accepted,
    an_entry,
    an_object,
    an_operation,
    family,
    key,
    moved,
    some_work,
)
from tests.contract.store_calls import write

GROWING = ("objects", "operations", "journal", "progress", "signals", "timers", "answers")
"""What grows with the deployment or its age. Work, locks and workers are as many as what is open."""

KINDS, KEYS, SPAN, CURSOR = ["vm"], [key("a"), key("b")], JournalSpan(0, 9), OperationCursor(5.0, "x")
PAGE, SORTED = Page("a", 5), SortedPage(SortOrder("state"), None, 5)
BY_ID = SortedPage(SortOrder("id"), ("a", NS, "a"), 5)
ENDED = (Status.FAILED, Status.CANCELLED)

Call = Callable[[Any], Awaitable[Any]]

READS: dict[str, Call] = {
    "object": lambda reader: reader.object(key("a")),
    "objects": lambda reader: reader.objects(KEYS),
    "list_objects of a kind": lambda reader: reader.list_objects(Selector(NS, "vm"), PAGE),
    "list_objects in a state": lambda reader: reader.list_objects(Selector(NS, "vm", states=("Running",)), PAGE),
    "list_objects of a parent": lambda reader: reader.list_objects(Selector(NS, parent="p"), PAGE),
    "list_objects of a namespace": lambda reader: reader.list_objects(Selector(NS), PAGE),
    "list_objects by ids": lambda reader: reader.list_objects(Selector(NS, ids=("a", "b")), PAGE),
    "count_groups": lambda reader: reader.count_groups(Selector(NS, "vm"), BY_STATE),
    "list_sorted": lambda reader: reader.list_sorted(Selector(NS, "vm"), SORTED),
    "list_sorted by ids": lambda reader: reader.list_sorted(Selector((NS, "beta")), BY_ID),
    "search": lambda reader: reader.search([NS], SearchText("a"), 5),
    "count_states": lambda reader: reader.count_states(Selector(NS, parent="p")),
    "count_by_namespace": lambda reader: reader.count_by_namespace([NS], "vm"),
    "operation": lambda reader: reader.operation(key("x")),
    "operations": lambda reader: reader.operations(KEYS),
    "operations_of": lambda reader: reader.operations_of(key("a"), 5),
    "list_operations": lambda reader: reader.list_operations(OperationFilter(NS), CURSOR, 5),
    "list_operations up to one": lambda reader: reader.list_operations(
        OperationFilter(NS, who="ann", statuses=ENDED, oldest=CURSOR), CURSOR, 5
    ),
    "list_operations that are open": lambda reader: reader.list_operations(
        OperationFilter(NS, kind="vm", statuses=(Status.WAITING,)), None, 5
    ),
    "list_operations of a group": lambda reader: reader.list_operations(OperationFilter(NS, group="x"), None, 5),
    "list_operations of an object": lambda reader: reader.list_operations(OperationFilter(NS, object="a"), None, 5),
    "operation_reach": lambda reader: reader.operation_reach(NS, CURSOR, 5),
    "count_parts": lambda reader: reader.count_parts(NS, ["x"]),
    "children_of": lambda reader: reader.children_of(key("x")),
    "queue_of": lambda reader: reader.queue_of(key("a")),
    "journal": lambda reader: reader.journal(5, 5, JournalFilter(upto=9)),
    "journal of a namespace": lambda reader: reader.journal(5, 5, JournalFilter(NS, kind="vm", upto=9)),
    "journal of an object": lambda reader: reader.journal(5, 5, JournalFilter(NS, "a")),
    "newest_entries": lambda reader: reader.newest_entries(9, 5, JournalFilter(NS, "a")),
    "journal_reach": lambda reader: reader.journal_reach(5, 5, None),
    "journal_reach in a namespace": lambda reader: reader.journal_reach(5, 5, NS),
    "count_transitions": lambda reader: reader.count_transitions(5, 0.0, 60.0),
    "last_journal_seq": lambda reader: reader.last_journal_seq(),
    "progress_of": lambda reader: reader.progress_of(key("x"), 0),
    "lanes": lambda reader: reader.lanes(),
    "work_by_lane": lambda reader: reader.work_by_lane([NS]),
    "stuck": lambda reader: reader.stuck(5, [NS]),
    "namespaces": lambda reader: reader.namespaces(),
    "label_keys": lambda reader: reader.label_keys([NS]),
    "workers": lambda reader: reader.workers(),
    "timers": lambda reader: reader.timers(None, 5),
    "locks_of": lambda reader: reader.locks_of(key("a")),
    "next_due_time": lambda reader: reader.next_due_time(KINDS),
    "time": lambda reader: reader.time(),
}
CHANGES = Changes(
    objects=[moved(an_object("a"), state="Stopped"), moved(an_object("b"), spec='{"a":1}'), an_object("new")],
    operations=[an_operation("op-new", "new")],
    ended=[Ended(NS, "x", Status.FAILED, 1, 1.0, 2.0, None, "broken", "{}")],
    masked_args=[(key("x"), "{}")],
    steps=[(key("y"), "{}")],
    renamed_states=[an_operation("y", "on-y")],
    new_work=[some_work("op-new", "new")],
    work_gone=[key("x")],
    children_ended=[key("y")],
    journal=[an_entry()],
    progress=[a_step("y", "half")],
    signals=[a_signal("y", "go")],
    locks=[a_lock("y")],
    locks_gone=[key("x")],
    timers=[a_timer("t2", 1e12)],
    timers_gone=[key("t")],
    idempotency_records=[a_key_record("k2")],
)
WRITES: dict[str, Call] = {
    "objects": lambda tx: tx.objects(KEYS),
    "peek": lambda tx: tx.peek(KEYS),
    "lock_keys": lambda tx: tx.lock_keys(KEYS),
    "share_keys": lambda tx: tx.share_keys(KEYS),
    "namespaces": lambda tx: tx.namespaces(),
    "select": lambda tx: tx.select(Selector(NS, "vm", states=("Failed",))),
    "select by the beginning of ids": lambda tx: tx.select(Selector(NS, "vm", "p", id_prefix="a")),
    "peek_selected": lambda tx: tx.peek_selected(Selector(NS, parent=("p", "q"))),
    "count_selected": lambda tx: tx.count_selected(Selector(NS, parent="p")),
    "operations": lambda tx: tx.operations(KEYS),
    "work": lambda tx: tx.work(KEYS),
    "queues": lambda tx: tx.queues(KEYS),
    "locks": lambda tx: tx.locks(KEYS),
    "signals": lambda tx: tx.signals(KEYS),
    "idempotency_records": lambda tx: tx.idempotency_records(KEYS),
    "count_objects": lambda tx: tx.count_objects(NS, "vm", 5),
    "count_open_operations": lambda tx: tx.count_open_operations(NS, 5),
    "due_timers": lambda tx: tx.due_timers(5, KINDS),
    "lane_loads": lambda tx: tx.lane_loads(KINDS),
    "claim": lambda tx: tx.claim({"": 5}, "w", {"": 5}, KINDS),
    "overdue": lambda tx: tx.overdue(5, KINDS, "w"),
    "heartbeat": lambda tx: tx.heartbeat(a_worker("w")),
    "remove_worker": lambda tx: tx.remove_worker("w"),
    "workers": lambda tx: tx.workers(),
    "dead_workers": lambda tx: tx.dead_workers(),
    "owned": lambda tx: tx.owned("w"),
    "flush_early": lambda tx: tx.flush_early(Changes(journal=[an_entry()])),
    "apply": lambda tx: tx.apply(CHANGES),
}
PRUNING: dict[str, Call] = {
    "journal_span": lambda retention: retention.journal_span(0, 9, 5),
    "operations": lambda retention: retention.operations(SPAN, 50.0),
    "objects": lambda retention: retention.objects(SPAN, 50.0),
    "journal_entries": lambda retention: retention.journal_entries(SPAN, 50.0, 9, KEYS, KEYS),
    "idempotency_records": lambda retention: retention.idempotency_records(BEFORE_ALL_KEYS, 50.0, 5),
    "drop_operations": lambda retention: retention.drop_operations(KEYS),
    "drop_objects": lambda retention: retention.drop_objects(KEYS, 50.0),
    "drop_journal_entries": lambda retention: retention.drop_journal_entries([1, 2]),
    "drop_idempotency_records": lambda retention: retention.drop_idempotency_records(KEYS, 50.0),
}
PARTS: dict[str, dict[str, Call]] = {"read": READS, "tx": WRITES, "prune": PRUNING}
CALLS = [f"{part} {name}" for part, calls in PARTS.items() for name in calls]
REASONS = {
    "read count_by_namespace": "the end of the key of the journal",
    "read search": "ends at the first hits, and reads narrow indexes or one table, once",
    "read label_keys": "reads all objects, for error messages only",
    "read namespaces": "goes from one namespace to the next",
    "tx namespaces": "goes from one namespace to the next",
    "read last_journal_seq": "the end of the key",
    "read timers": "the first ones in the order of their times",
    "read next_due_time": "the first one in the order of times",
    "prune idempotency_records": "a page in the order of the key, from a key on",
}
"""Calls that walk a table, an index or a namespace, and why they may."""


def test_every_method_of_the_port_is_called() -> None:
    for calls, port in ((READS, Reader), (WRITES, Tx), (PRUNING, Retention)):
        methods = {name for name, found in vars(port).items() if name[0] != "_" and not isinstance(found, property)}
        assert {name.partition(" ")[0] for name in calls} == methods


async def run(store: Store, name: str) -> None:
    """Run one of the calls."""
    part, _, what = name.partition(" ")
    call = PARTS[part][what]
    if part == "tx":
        await store.transact(call)
    else:
        await call(store.reader if part == "read" else store.retention)


async def fill(store: Store) -> None:
    """Write rows of every kind."""
    await write(store, accepted("x", "y"))
    await write(store, family("other"))
    objects = [an_object(name, parent="p") for name in ("a", "b")]
    await write(store, objects=objects, journal=[an_entry() for _ in range(9)], timers=[a_timer("t", 1e12)])


# --- SQLite ----------------------------------------------------------------------------------------------------------

STEP = re.compile(r"(SCAN|SEARCH) (\w+)(?: USING .*?\((ns=\?)\)$| USING .*?\(.*\)$|.*)")


def walked_by_sqlite(connection: sqlite3.Connection, sql: str) -> list[str]:
    """Return the steps of a plan that walk a growing table, its index, or a namespace of it."""
    named = {found[1] or found[0]: found[0] for found in re.findall(rf"\b({'|'.join(GROWING)})\b(?: +(\w)\b)?", sql)}
    steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
    return [
        step
        for step in steps
        if (found := STEP.match(step)) is not None
        and (found[2] in named or found[2] in GROWING)
        and (found[1] == "SCAN" or found[3] is not None)
        and "VIRTUAL TABLE" not in step
    ]


@pytest.mark.parametrize("name", CALLS)
async def test_sqlite_walks_nothing_that_grows(name: str) -> None:
    store = SqliteStore(":memory:")
    await store.open()
    await fill(store)
    connection, sent = store._writer.writer_connection.connection, list[str]()
    connection.set_trace_callback(sent.append)
    await run(store, name)
    connection.set_trace_callback(None)
    planned = [sql for sql in sent if re.match(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)", sql)]
    walked = [step for sql in planned for step in walked_by_sqlite(connection, sql)]
    await store.close()
    assert name in REASONS or walked == []


# --- PostgreSQL ------------------------------------------------------------------------------------------------------


def walked_by_postgres(node: dict[str, Any]) -> Iterator[str]:
    """Yield the nodes of a plan that walk a growing table, its index, or a namespace of it."""
    if "Scan" in node["Node Type"] and node.get("Relation Name") in GROWING:
        condition = node.get("Index Cond") or node.get("Recheck Cond") or ""
        if not condition or ("ns" in condition and " AND " not in condition):
            yield f"{node['Node Type']} on {node['Relation Name']} by {node.get('Index Name')} {condition}"
    for below in node.get("Plans", ()):
        yield from walked_by_postgres(below)


async def test_postgres_walks_nothing_that_grows(postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[dict[str, str], str, tuple[Any, ...]]] = []
    connect = DatabaseAddress.connect

    async def connect_recorded(address: DatabaseAddress, settings: Any) -> Any:
        connection: Any = await connect(address, settings)
        connection.add_query_logger(lambda query: sent.append((settings, query.query, query.args)))
        return connection

    store = PostgresStore(postgres_database, migrate=True, schema="plans")
    await store.open()
    await fill(store)
    many = range(3_000)
    objects = [an_object(f"many-{n}", parent=f"p{n % 300}", state=f"S{n % 30}") for n in many]
    operations = [an_operation(f"op-{n}", f"many-{n}", parent=f"x{n % 300}" if n % 2 else None) for n in many]
    journal = [an_entry(f"many-{n}", ns=f"ns-{n % 10}", op=f"op-{n}") for n in many]
    await write(store, objects=objects, operations=operations, journal=journal)
    await store.close()
    connection = await asyncpg.connect(postgres_database, server_settings={"search_path": "plans"})
    await connection.execute("ANALYZE")
    await connection.close()
    monkeypatch.setattr(DatabaseAddress, "connect", connect_recorded)
    store = PostgresStore(postgres_database, schema="plans")
    await store.open()
    walked: dict[str, list[str]] = {}
    for name in CALLS:
        sent.clear()
        await run(store, name)
        await asyncio.sleep(0)  # the driver calls its loggers from the loop
        for settings, sql, args in sent:
            if re.match(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)", sql):
                found = await explain(postgres_database, settings, sql, args)
                walked.setdefault(name, []).extend(found)
    await store.close()
    assert walked.keys() >= {*CALLS} - {"tx flush_early"}
    assert {name: found for name, found in walked.items() if found and name not in REASONS} == {}


async def explain(dsn: str, settings: dict[str, str], sql: str, args: tuple[Any, ...]) -> list[str]:
    """Return what a statement walks where it has an index to use: tables with a few rows are read as a whole else."""
    forced = {**settings, "search_path": "plans", "enable_seqscan": "off", "default_transaction_read_only": "off"}
    connection = await asyncpg.connect(dsn, server_settings=forced)
    try:
        plan = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) {sql}", *args))
    finally:
        await connection.close()
    return list(walked_by_postgres(plan[0]["Plan"]))
