"""Opening a database: migration of its schema, or an error that says what is wrong."""

import asyncio

import pytest

from stateward.store.errors import NotADatabase, StoreError, Unavailable, WrongSchema
from stateward.store.postgres import PostgresStore
from stateward.store.records import Key
from tests.contract.samples import NS
from tests.integration.postgres_helpers import in_loop, looking_at, opened
from tests.integration.postgres_samples import creates


@in_loop
async def test_a_database_without_our_schema_is_refused_and_the_command_is_named(postgres_dsn: str) -> None:
    url = postgres_dsn.replace(":@", ":hunter2@")
    with pytest.raises(WrongSchema, match="or open it with `migrate=True`") as found:
        await PostgresStore(url).open()
    assert f"run `stateward migrate --database '{url.replace('hunter2', '***')}'` first" in str(found.value)


@in_loop
async def test_several_processes_may_migrate_at_once(postgres_dsn: str) -> None:
    stores = [PostgresStore(postgres_dsn, migrate=True) for _ in range(5)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.close() for store in stores))
    async with looking_at(postgres_dsn) as connection:
        assert await connection.fetchval("SELECT count(*) FROM schema_versions WHERE version = 1") == 1


@in_loop
async def test_a_migrated_database_opens_without_migrating(postgres_dsn: str) -> None:
    async with opened(postgres_dsn):
        store = PostgresStore(postgres_dsn)
        await store.open()
        await store.close()


@pytest.mark.parametrize("migrate", [True, False])
@in_loop
async def test_a_newer_schema_is_refused(postgres_dsn: str, migrate: bool) -> None:
    async with opened(postgres_dsn), looking_at(postgres_dsn) as connection:
        await connection.execute("INSERT INTO schema_versions VALUES (999, 'from the future')")
        with pytest.raises(WrongSchema, match="version 999"):
            await PostgresStore(postgres_dsn, migrate=migrate).open()


@in_loop
async def test_tables_of_others_in_our_place_are_left_alone(postgres_dsn: str) -> None:
    async with looking_at(postgres_dsn) as connection:
        await connection.execute("CREATE SCHEMA stateward; CREATE TABLE stateward.objects (theirs text)")
        with pytest.raises(NotADatabase):
            await PostgresStore(postgres_dsn, migrate=True).open()
        assert await connection.fetchval("SELECT to_regclass('stateward.operations')") is None


@in_loop
async def test_a_missing_database_is_named(postgres_dsn: str) -> None:
    missing = postgres_dsn.replace("/test_", "/no_test_")
    with pytest.raises(NotADatabase, match="does not exist"):
        await PostgresStore(missing, migrate=True).open()


@in_loop
async def test_an_unknown_user_is_named(postgres_dsn: str) -> None:
    with pytest.raises(StoreError, match="nobody"):
        await PostgresStore(postgres_dsn.replace("postgres:@", "nobody:@"), migrate=True).open()


@in_loop
async def test_no_server_is_unavailable(tmp_path: object) -> None:
    with pytest.raises(Unavailable):
        await PostgresStore(f"postgresql://postgres:@/x?host={tmp_path}").open()


@in_loop
async def test_two_schemas_in_one_database_do_not_see_each_other(postgres_dsn: str) -> None:
    async with opened(postgres_dsn, schema="one") as one, opened(postgres_dsn, schema='An "other"') as other:
        await one.transact(creates("a"))
        assert await one.reader.object(Key(NS, "a")) is not None
        assert await other.reader.object(Key(NS, "a")) is None


@in_loop
async def test_a_closed_store_says_so(postgres_dsn: str) -> None:
    async with opened(postgres_dsn) as store:
        pass
    with pytest.raises(Unavailable, match="closed"):
        await store.transact(creates("a"))
