"""The plans of pruning on PostgreSQL: by key, whatever the planner believes of the tables."""

import json

import asyncpg
import pytest

from stateward.store.postgres import retention
from stateward.store.postgres.connections import writer_settings
from tests.integration.postgres_helpers import in_loop
from tests.integration.test_postgres_plans import emptied, read_as_a_whole, read_by_namespace
from tests.servers import VERSIONS

STATEMENTS = {
    name: sql
    for name, sql in vars(retention).items()
    if name.isupper() and isinstance(sql, str) and name not in ("FREE", "PAGE")
}
PAGES = {"IDEMPOTENCY_RECORDS"}
"""What goes on behind a whole key, as far as a number of rows."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", STATEMENTS)
@in_loop
async def test_nothing_is_read_as_a_whole_even_if_all_tables_seem_empty(version: int, name: str) -> None:
    settings = {**writer_settings(5.0), "search_path": "stateward"}
    connection = await asyncpg.connect(await emptied(version), server_settings=settings)
    places = len((await connection.prepare(STATEMENTS[name])).get_parameters())
    await connection.execute(f"PREPARE it AS {STATEMENTS[name]}")
    values = f"({', '.join(['NULL'] * places)})"
    plan = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE it{values}"))
    await connection.close()
    assert list(read_as_a_whole(plan[0]["Plan"])) == []
    assert name in PAGES or list(read_by_namespace(plan[0]["Plan"])) == []
