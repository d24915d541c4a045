"""`stateward prune`: on a server, and in a data folder without one."""

import asyncio
import json
import threading
import time
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stateward.access import Role, Tokens
from stateward.access.tokens import token_kind
from stateward.cli.main import app as command_line
from stateward.engine import Engine
from stateward.engine.maintenance.horizon import horizon
from stateward.engine.maintenance.retention import prune
from stateward.store.sqlite import SqliteStore
from tests.contract.samples import a_key_record, a_step, an_entry, an_object, an_operation
from tests.contract.store_calls import write
from tests.integration.cli.cli_server import WIDE, CliServer

DAY = 86_400


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a data folder in which something ended a hundred days ago."""

    async def begin() -> None:
        store = SqliteStore(tmp_path / "stateward.db")
        async with Engine(store, [token_kind()], works=False) as engine:
            then = time.time() - 100 * DAY
            await write(
                store,
                objects=[an_object("a", kind="ovc.vm", state="VIRTUAL"), an_object("b", removed=True, since=then)],
                operations=[an_operation("x", created=then, ended=then)],
                journal=[
                    an_entry("a", op="x", at=then),
                    an_entry("a", op="x", at=then, target="VIRTUAL"),
                    an_entry("b", at=then),
                ],
                progress=[a_step("x", "half")],
                idempotency_records=[a_key_record("k", at=then)],
            )
            text, _ = await Tokens(engine).issue("admin", Role.ADMIN, ["*"])
            (tmp_path / "admin-token").write_text(text)

    asyncio.run(begin())
    return tmp_path


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(
        command_line, list(words), env={**WIDE, "STATEWARD_DATA": str(folder), "STATEWARD_ONLY": "ovc"}
    )


def test_a_folder_is_pruned_without_a_server(folder: Path) -> None:
    said = run(folder, "prune", "--older", "90d", "--dry-run")
    assert said.exit_code == 0, said.output
    assert said.stdout.startswith(
        "Would delete 1 operation, 1 removed object, 2 journal entries and 1 idempotency record from before "
    )
    done = run(folder, "prune", "--older", "90d")
    assert done.stdout.startswith("Deleted 1 operation, ")
    assert done.stdout.removeprefix("Deleted ")[:40] == said.stdout.removeprefix("Would delete ")[:40]
    again = json.loads(run(folder, "prune", "--older", "12w", "--json").stdout)
    assert (again["operations"], again["objects"], again["lines"], again["answers"]) == (0, 0, 0, 0)
    (left,) = json.loads(run(folder, "list", "-n", "acme", "--json").stdout)
    assert (left["id"], left["state"]) == ("a", "VIRTUAL")
    (line,) = json.loads(run(folder, "history", "a", "-n", "acme", "--json").stdout)
    assert line["target"] == "VIRTUAL"


def test_watching_a_folder_from_behind_the_horizon_is_told(folder: Path) -> None:
    run(folder, "prune", "--older", "90d")
    done = run(folder, "watch", "-A", "--after", "0", "--count", "1", "--json")
    assert done.exit_code == 0, done.output
    assert "note: of the lines from 1 to 3 some were pruned" in done.stderr
    assert json.loads(done.stdout)["object"] == "a"


@pytest.mark.parametrize("older", ["90", "0d", "soon", "-1d", "90s", "1.5d", ""])
def test_a_span_that_is_none_exits_with_2(folder: Path, older: str) -> None:
    done = run(folder, "prune", f"--older={older}")
    assert done.exit_code == 2
    assert "--older" in done.stderr


def test_the_span_has_to_be_said(folder: Path) -> None:
    assert run(folder, "prune").exit_code == 2


def test_a_server_prunes_when_an_administrator_asks(cli: CliServer) -> None:
    cli.built("p1")
    done = cli.json("prune", "--older", "90d")
    assert (done["operations"], done["next"]) == (0, None)
    viewer = cli.json("token", "create", "somebody", "--ns", cli.ns)["token"]
    refused = cli.run("prune", "--older", "90d", token=viewer)
    assert refused.exit_code == 4
    assert "right" in refused.stderr


def test_watching_a_server_from_behind_the_horizon_is_told(tmp_path: Path) -> None:
    with CliServer(tmp_path).opened() as cli:
        cli.ns = "t"
        cli.built("p1")
        cli.built("p2")
        cli.ask(pruned(cli))
        kept = cli.ask(horizon(cli.engine.store.reader)).seq
        over = threading.Event()
        busy = threading.Thread(target=build_until, args=(cli, over))
        busy.start()
        done = cli.run("watch", "--after", "0", "--count", "1", "--json")
        over.set()
        busy.join()
    assert done.exit_code == 0, done.output
    assert f"note: of the lines from 1 to {kept} some were pruned" in done.stderr
    assert json.loads(done.stdout)["seq"] > kept


async def pruned(cli: CliServer) -> None:
    """Prune everything that has ended by now."""
    await prune(cli.engine.store, await cli.engine.store.reader.time())


def build_until(cli: CliServer, over: threading.Event) -> None:
    """Build one pump after the other, until something is over."""
    for number in count():
        if over.is_set():
            return
        cli.built(f"q{number}")
