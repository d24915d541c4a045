"""Query plans of retention on SQLite: every statement uses an index."""

import pytest

from stateward.store.sqlite import SqliteStore, retention
from tests.contract.test_sqlite_plans import PLACEHOLDER, WHOLE_TABLE, plan

FRAGMENTS = {"FREE", "KEY", "KEYS", "NAME"}
STATEMENTS = {
    name: sql
    for name, sql in vars(retention).items()
    if name.isupper() and isinstance(sql, str) and name not in FRAGMENTS and not PLACEHOLDER.search(sql)
}


async def steps_of(name: str) -> list[str]:
    """Return the steps in which SQLite would carry a statement out on an empty database."""
    store = SqliteStore(":memory:")
    await store.open()
    try:
        return plan(store._writer.writer_connection.connection, STATEMENTS[name])
    finally:
        await store.close()


def test_all_statements_are_looked_at() -> None:
    assert len(STATEMENTS) >= 11


@pytest.mark.parametrize("name", STATEMENTS)
async def test_no_statement_reads_a_whole_table(name: str) -> None:
    assert not [step for step in await steps_of(name) if WHOLE_TABLE.match(step) or step in ("SCAN j", "SCAN o")]


@pytest.mark.parametrize("name", ["OPERATIONS", "OBJECTS", "JOURNAL_ENTRIES"])
async def test_the_journal_is_walked_by_its_numbers_and_looked_up_by_its_objects(name: str) -> None:
    steps = [step for step in await steps_of(name) if step.startswith("SEARCH j ")]
    assert steps == ["SEARCH j USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]


@pytest.mark.parametrize("name", STATEMENTS)
async def test_no_index_is_searched_by_the_namespace_alone(name: str) -> None:
    assert not [step for step in await steps_of(name) if step.endswith("(ns=?)")]


@pytest.mark.parametrize("name", ["IDEMPOTENCY_RECORDS"])
async def test_a_walk_goes_on_behind_the_last_key(name: str) -> None:
    assert any("(ns,key)>(?,?)" in step or "(ns,id)>(?,?)" in step for step in await steps_of(name))
