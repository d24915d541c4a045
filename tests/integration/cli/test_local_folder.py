"""A data folder without a server: the same commands; accepted operations wait for a worker."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stateward.access import Role, Tokens
from stateward.access.quotas import quota_kind
from stateward.access.tokens import token_kind
from stateward.cli.main import app as command_line
from stateward.domains.mci.lifecycle import VM
from stateward.engine import Engine, Handler, Job, Kind
from stateward.store import Changes, open_store
from tests.contract.samples import an_object
from tests.integration.cli.cli_server import WIDE, CliServer
from tests.integration.cli.vm_spec import MCI, with_spec

Run = Callable[..., Result]
MCI_OF_VMS = {"ns": "default", "kind": "mci.mci", "state": "Running", "spec": json.dumps(MCI)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    async def begin() -> None:
        async with Engine(open_store(str(tmp_path / "stateward.db")), [token_kind()], works=False) as engine:
            text, _ = await Tokens(engine).issue("admin", Role.ADMIN, ["*"])
            (tmp_path / "admin-token").write_text(text)
            await engine.store.transact(lambda tx: tx.apply(Changes(objects=[an_object("m", **MCI_OF_VMS)])))

    asyncio.run(begin())
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Run:
    def run(*words: str, **more: str) -> Result:
        return CliRunner().invoke(
            command_line,
            with_spec(folder, words),
            env={**WIDE, "STATEWARD_DATA": str(folder), "STATEWARD_ONLY": "mci", **more},
        )

    return run


def states(run: Run) -> dict[str, str]:
    return {one["id"]: one["state"] for one in json.loads(run("list", "--json").stdout)}


def test_what_is_asked_for_is_accepted_and_said_to_wait(run: Run) -> None:
    done = run("create", "mci.vm", "m.m1")
    assert done.exit_code == 0, done.output
    assert "Creating" in done.stdout
    assert "the work waits until one does" in done.stderr
    assert states(run) == {"m": "Running", "m.m1": "Creating"}
    assert "no worker is alive" in run("why", "m.m1").stdout


def test_waiting_for_a_server_that_does_not_come_can_be_limited(run: Run) -> None:
    done = run("create", "mci.vm", "m.m1", "--wait", "--timeout", "0.1")
    assert done.exit_code == 1
    assert "it goes on" in done.stderr


def test_a_command_that_would_wait_for_ever_ends_and_changes_nothing(run: Run) -> None:
    done = run("create", "mci.vm", "m.m1", "--wait")
    assert done.exit_code == 3
    assert "no server runs on this data folder, so nobody does the work" in done.stderr
    assert states(run) == {"m": "Running"}
    op = json.loads(run("create", "mci.vm", "m.m1", "--json").stdout)[0]["operation"]["id"]
    for waiting in (["wait", op], ["operations", "follow", op], ["logs", "-f", op]):
        assert run(*waiting).exit_code == 3
    assert run("cancel", op).exit_code == 0
    assert run("logs", "-f", op).exit_code == 0  # it has ended, so there is nothing to wait for


def test_the_first_line_says_that_no_server_runs(run: Run, folder: Path) -> None:
    done = run("list", "--json")
    assert len(json.loads(done.stdout)) == 1
    assert done.stderr.startswith(f"No server runs on {folder}")


def test_what_was_accepted_is_done_when_a_worker_comes(run: Run, folder: Path) -> None:
    op = json.loads(run("create", "mci.vm", "m.m1", "--json").stdout)[0]["operation"]["id"]

    async def make(job: Job) -> Any:
        return {"made": job.object}

    async def serve() -> None:
        kinds = [token_kind(), quota_kind(), Kind(VM, dict.fromkeys(VM.actions, Handler(make)))]
        async with Engine(open_store(str(folder / "stateward.db")), kinds) as engine:
            await engine.wait_record("default", op, 120)

    asyncio.run(serve())
    assert json.loads(run("wait", op, "--json").stdout)[0]["operation"]["status"] == "succeeded"
    assert "Running" in run("get", "vm/m.m1").stdout


def test_the_journal_and_the_screen_work_without_a_server(run: Run) -> None:
    run("create", "mci.vm", "m.m1")
    assert "m.m1 create (new) -> Creating" in run("watch", "--after", "0", "--count", "1").stdout
    assert "2 objects, 1 in transition, 0 operations running, 0 workers" in run("top", "--once").stdout
    assert "create" in run("history", "m.m1").stdout


def test_the_lanes_are_those_of_a_server_and_work_waits_in_its_own(run: Run) -> None:
    def lane() -> dict[str, Any]:
        lanes: list[dict[str, Any]] = json.loads(run("lanes", "--json").stdout)["lanes"]
        return next(one for one in lanes if one["lane"] == "aws/ap-northeast-2")

    assert (lane()["capacity"] > 0, lane()["waiting"]) == (True, False)
    run("create", "mci.vm", "m.m1")
    assert lane()["waiting"] is True


def test_a_token_of_ones_own_goes_before_the_folders(run: Run) -> None:
    viewer = json.loads(run("token", "create", "v", "--ns", "default", "--json").stdout)["token"]
    assert run("list", STATEWARD_TOKEN=viewer).exit_code == 0
    assert run("create", "mci.vm", "m.m1", STATEWARD_TOKEN=viewer).exit_code == 4


def test_a_folder_whose_token_is_not_ours_opens_nothing(run: Run, folder: Path) -> None:
    (folder / "admin-token").unlink()
    done = run("list")
    assert done.exit_code == 4
    assert "token" in done.stderr


def test_a_folder_that_a_program_with_the_library_has_made_asks_for_no_token(tmp_path: Path) -> None:
    async def begin() -> None:
        async with Engine(open_store(str(tmp_path / "stateward.db")), [Kind(VM)], works=False) as engine:
            await engine.store.transact(lambda tx: tx.apply(Changes(objects=[an_object("m", **MCI_OF_VMS)])))

    asyncio.run(begin())
    for _ in range(2):
        words = ["list", "--json", "--data", str(tmp_path)]
        done = CliRunner().invoke(command_line, words, env={**WIDE, "STATEWARD_ONLY": "mci"})
        assert [one["id"] for one in json.loads(done.stdout)] == ["m"], done.output


def test_a_folder_whose_server_runs_is_spoken_to_through_it(cli: CliServer) -> None:
    (cli.folder / "server.json").write_text(json.dumps({"url": cli.url}))
    (cli.folder / "admin-token").write_text(cli.token)
    cli.built("p1")
    env = {**WIDE, "STATEWARD_NAMESPACE": cli.ns}
    done = CliRunner().invoke(command_line, ["do", "tune", "p1", "--wait", "--data", str(cli.folder)], env=env)
    assert done.exit_code == 0, done.output
    assert "succeeded" in done.stdout
    assert "waits" not in done.stderr


def test_a_folder_that_is_no_database_of_ours_is_refused_with_2(tmp_path: Path) -> None:
    (tmp_path / "stateward.db").write_text("certainly no database, but long enough to be taken for one" * 100)
    done = CliRunner().invoke(command_line, ["list", "--data", str(tmp_path)], env=WIDE)
    assert done.exit_code == 2
    assert "not a Stateward database" in done.stderr
