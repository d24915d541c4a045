"""The plans of the list of operations and of the search on PostgreSQL, with many rows and the planner's statistics."""

import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from stateward.store.changes import Changes
from stateward.store.filters import OperationCursor, OperationFilter, Selector
from stateward.store.postgres import readers
from stateward.store.postgres.connections import READER_SETTINGS
from stateward.store.postgres.queries import where_objects
from stateward.store.records import Status
from tests.contract.samples import NS, an_object, an_operation, some_work
from tests.integration.postgres_helpers import in_loop, opened
from tests.servers import VERSIONS, shared_server

ENDED, OPEN = (Status.FAILED, Status.CANCELLED), (Status.RUNNING, Status.WAITING)
FILTERS = {
    "all": OperationFilter(NS),
    "kind and action": OperationFilter(NS, kind="vm", action="suspend"),
    "who": OperationFilter(NS, who="ann"),
    "ended": OperationFilter(NS, statuses=ENDED),
    "open": OperationFilter(NS, kind="vm", statuses=OPEN),
    "object": OperationFilter(NS, object="on-7", statuses=ENDED),
    "group": OperationFilter(NS, group="p1", statuses=ENDED),
}
IN_ORDER = ("all", "kind and action", "who")
"""What walks the index of the list, newest first, and stops at the end of the page."""


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the nodes of a plan."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


async def explain(version: int, sql: str, *values: object) -> list[dict[str, Any]]:
    settings = {**READER_SETTINGS, "search_path": "stateward"}
    connection = await asyncpg.connect(await filled(version), server_settings=settings)
    found = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) {sql}", *values))
    await connection.close()
    return list(nodes(found[0]["Plan"]))


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_operations_are_listed_by_an_index(version: int) -> None:
    for what, only in FILTERS.items():
        for before in (None, OperationCursor(150.0, "x")):
            plan = await explain(version, *flat(readers.operation_page(only, before, 50)))
            whole = [one["Node Type"] for one in plan if "Seq Scan" in one["Node Type"] and on_operations(one)]
            assert whole == [], (what, before, plan)
            if what in IN_ORDER:
                assert "operations_by_time" in {one.get("Index Name") for one in plan}, (what, plan)
                assert "Sort" not in {one["Node Type"] for one in plan}, (what, plan)


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_a_page_of_a_kind_is_read_in_the_order_of_its_ids(version: int) -> None:
    for after in (None, "on-2000"):
        where = where_objects(Selector(NS, kind="vm"))
        where.add_given("o.id > ?", after)
        plan = await explain(version, readers.OBJECT_PAGE.replace("<where>", str(where)) + "100", *where.values)
        assert "Sort" not in {one["Node Type"] for one in plan}, plan
    rare = where_objects(Selector(NS, kind="rare"))
    plan = await explain(version, readers.OBJECT_PAGE.replace("<where>", str(rare)) + "100", *rare.values)
    assert "objects_by_kind" in {one.get("Index Name") for one in plan}, plan


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_ids_are_searched_by_their_key(version: int) -> None:
    for sql in (readers.ID_BEGINS, readers.OPERATION_BEGINS):
        plan = await explain(version, sql, [NS], "o7", "o8", 5)
        by_key = [one for one in plan if "id >=" in one.get("Index Cond", "")]
        assert by_key, plan
        assert not [one for one in plan if "Seq Scan" in one["Node Type"]], plan


def flat(query: tuple[str, list[object]]) -> tuple[Any, ...]:
    return query[0], *query[1]


def on_operations(node: dict[str, Any]) -> bool:
    return node.get("Relation Name") == "operations"


known: dict[int, str] = {}


async def filled(version: int) -> str:
    """Return a database with many operations: entries that have ended, parts of composites and of bulks, open ones."""
    if version not in known:
        dsn = shared_server(version).new_database()
        async with opened(dsn) as store:
            done: dict[str, Any] = {"status": Status.SUCCEEDED, "ended": 200.0}
            rows = [an_operation(f"o{n}", f"on-{n}", created=100.0 + n / 50, **done) for n in range(4_000)]
            rows += [an_operation(f"p{n}", "m", created=100.0, **done) for n in range(20)]
            rows += [an_operation(f"c{n}", f"on-{n}", parent=f"p{n % 20}", created=101.0, **done) for n in range(1_000)]
            rows += [an_operation(f"b{n}", f"on-{n}", bulk=f"b{n % 5}", created=102.0, **done) for n in range(500)]
            rows += [an_operation(f"w{n}", f"on-{n}", created=190.0) for n in range(20)]
            work = [some_work(f"w{n}", f"on-{n}") for n in range(20)]
            objects = [an_object(f"on-{n}", kind="vm" if n % 40 else "rare") for n in range(4_000)]
            await store.transact(lambda tx: tx.apply(Changes(objects=objects, operations=rows, new_work=work)))
        connection = await asyncpg.connect(dsn)
        await connection.execute("VACUUM ANALYZE")
        await connection.close()
        known[version] = dsn
    return known[version]
