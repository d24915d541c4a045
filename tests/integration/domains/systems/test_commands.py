"""`stateward system` against a real server with simulated instances."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.secrets.keyring import KeyRing
from stateward.domains.systems.secrets.secret_actions import SecretReader
from stateward.domains.systems.settings import SystemsSettings
from tests.integration.cli.cli_server import DomainCliServer
from tests.integration.domains.systems.conftest import SHOP
from tests.waiting import wait_until


class SystemCliServer(DomainCliServer):
    """A server with systems."""

    command = "system"
    backend: SimulatedBackend

    def make_runtime(self) -> SystemsRuntime:
        self.backend = SimulatedBackend()
        backends = {"simulated": self.backend, "local": SimulatedBackend()}
        return SystemsRuntime(backends, SystemsSettings(local_namespaces="*"), SecretReader(KeyRing(self.folder)))

    def stuck(self, file: Path) -> str:
        """Begin a deploy of the shop that does not end by itself; returns it."""
        self.backend.fail("/web")
        (asked,) = self.seen("deploy", "shop", "--file", str(file))
        wait_until(lambda: self.seen("deploys", "shop")[0]["state"] == "in progress")
        return str(asked["id"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SystemCliServer]:
    with SystemCliServer(tmp_path_factory.mktemp("systems")).opened() as opened:
        assert isinstance(opened, SystemCliServer)
        yield opened


@pytest.fixture
def cli(server: SystemCliServer, request: pytest.FixtureRequest) -> Iterator[SystemCliServer]:
    """Return the server, with a shop in a namespace of its own for each test."""
    server.ns = request.node.name.replace("_", "-")[:60]
    server.done("create", "shop", "--backend", "simulated", "--wait")
    yield server
    server.backend.mend_all()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "shop.yaml"
    written.write_text(SHOP.replace("instances: 2", "instances: 2, deadline: 600"))
    return written


def test_a_system_that_is_well_is_not_tried_again(cli: SystemCliServer) -> None:
    answer = cli.run("system", "retry", "shop")
    assert answer.exit_code != 0
    assert "stable" in answer.output


def test_the_port_that_was_chosen_for_address_0_is_shown(cli: SystemCliServer, tmp_path: Path) -> None:
    file = tmp_path / "place.yaml"
    file.write_text("services: {web: {command: x, address: 0}}")
    cli.done("create", "place", "--backend", "local", "--file", str(file), "--wait")
    (web,) = cli.seen("status", "place")["services"]
    assert f"at 127.0.0.1:{web['address']}" in cli.done("status", "place")


def test_a_system_is_not_created_with_a_file_that_cannot_be_deployed(cli: SystemCliServer, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("services: {web: {command: x, instances: many}}")
    refused = cli.run("system", "create", "place", "--backend", "simulated", "--file", str(file))
    assert refused.exit_code != 0
    assert "services.web.instances" in refused.output.replace("\n", "")
    assert "not_found" in cli.run("system", "status", "place", "--json").output


def test_an_empty_definition_removes_everything_only_with_its_option(cli: SystemCliServer, file: Path) -> None:
    cli.done("deploy", "shop", "--file", str(file), "--wait")
    file.write_text("services: {}")
    refused = cli.run("system", "deploy", "shop", "--file", str(file))
    assert (refused.exit_code != 0, "--allow-empty" in refused.output) == (True, True)
    assert len(cli.seen("status", "shop")["services"]) == 3
    cli.done("deploy", "shop", "--file", str(file), "--allow-empty", "--wait")
    assert cli.seen("status", "shop")["services"] == []


def test_a_system_is_deployed_shown_rolled_back_and_torn_down(cli: SystemCliServer, file: Path) -> None:
    cli.done("deploy", "shop", "--file", str(file), "--wait")
    shown = cli.done("status", "shop")
    assert "/web is stable, 2 of 2 ready" in shown
    file.write_text(file.read_text().replace("web v1", "web v2"))
    cli.done("deploy", "shop", "--file", str(file), "--wait")
    assert cli.done("exec", "shop/web", "--", "echo", "--all", "\t\r\x1b[0m") == "echo --all \t\r\x1b[0m"
    assert "SYSTEM/PATH" in cli.run("system", "exec", "shop", "--", "echo").output
    cli.done("rollback", "shop", "--wait")
    web = next(one for one in cli.seen("status", "shop")["services"] if one["path"] == "/web")
    assert web["definition"]["command"] == ["web", "v1"]
    assert [one["state"] for one in cli.seen("deploys", "shop")] == ["succeeded"] * 3
    cli.done("teardown", "shop", "--wait")
    assert cli.seen("status", "shop")["services"] == []
    cli.done("delete", "shop", "--wait")
    assert cli.run("system", "status", "shop").exit_code != 0


def test_delete_is_refused_beside_a_deploy_and_with_force_cancels_it(cli: SystemCliServer, file: Path) -> None:
    stuck = cli.stuck(file)
    assert "/" in cli.done("locks", "shop")
    refused = cli.run("system", "delete", "shop")
    assert refused.exit_code != 0
    said = " ".join(refused.output.split())
    assert f"deploy {stuck} (operation" in said
    assert "holds X on /" in said
    assert "--force" in said
    cli.done("delete", "shop", "--force", "--wait")
    assert cli.run("system", "status", "shop").exit_code != 0


def test_a_node_is_deleted_and_the_command_says_so(cli: SystemCliServer) -> None:
    cli.done("node", "register", "n3")
    (gone,) = cli.seen("node", "delete", "n3", "--yes")
    assert (gone["id"], gone["object"], gone["problem"]) == ("n3", None, None)


def test_what_the_backend_cannot_use_is_told_by_file_and_line(cli: SystemCliServer, file: Path) -> None:
    file.write_text("services:\n  store:\n    services:\n      db:\n        command: db\n        node_pool: none\n")
    refused = cli.run("system", "deploy", "shop", "--file", str(file))
    assert "line 6, services.store.services.db.node_pool: must be a known node pool" in " ".join(refused.output.split())


def test_a_deploy_is_cancelled_and_who_queued_behind_it_goes_on(cli: SystemCliServer, file: Path) -> None:
    stuck = cli.stuck(file)
    behind = cli.seen("teardown", "shop", "--queue", "600")
    assert [one["waiting"] for one in cli.seen("locks", "shop")] == [False, True]
    shown = cli.seen("cancel", "shop", stuck, "--wait")
    assert [(one["object"]["state"], one["operation"]["status"]) for one in shown] == [("cancelled", "cancelled")]
    wait_until(lambda: cli.seen("locks", "shop") == [])
    assert cli.seen("deploys", "shop")[0]["state"] == "cancelled"
    assert behind


def test_a_mistake_in_a_definition_is_told_by_file_line_and_field(cli: SystemCliServer, file: Path) -> None:
    file.write_text(SHOP.replace("instances: 2", "instances: two"))
    answer = cli.run("system", "deploy", "shop", "--file", str(file))
    assert answer.exit_code != 0
    assert f"{file}, line 3, services.web.instances" in f"{answer.output} {answer.exception}"


def test_a_secret_is_read_from_a_file_or_standard_input_and_never_from_an_argument(
    cli: SystemCliServer, tmp_path: Path
) -> None:
    value = "hunter2-hunter2"
    answers = [cli.run("system", "secret", "create", "db", stdin=f"{value}\n")]
    (tmp_path / "value").write_text(f"{value}\n")
    answers.append(cli.run("system", "secret", "update", "db", "--from-file", str(tmp_path / "value")))
    assert [one.exit_code for one in answers] == [0, 0]
    (tmp_path / "binary").write_bytes(b"\xff\xfe" + value.encode())
    for words in (
        ["secret", "create", "other", value],  # no argument has a value
        ["secret", "create", "other", "--from-file", str(tmp_path / "binary")],
        ["secret", "create", "other", "--from-file", str(tmp_path / "missing")],
        ["secret", "create", "db", "--from-file", str(tmp_path / "value")],
    ):
        answers.append(cli.run("system", *words))
        assert answers[-1].exit_code != 0
    (shown,) = cli.seen("secret", "list")
    assert (shown["name"], shown["version"], shown["used_by"]) == ("db", 2, [])
    assert cli.seen("secret", "show", "db") == shown
    rotated = cli.done("secret", "rotate", "--wait")
    assert "rotated" in rotated
    answers.append(cli.run("system", "secret", "delete", "db"))
    printed = "".join(f"{one.output} {one.exception}" for one in answers[:2] + answers[3:])
    assert value not in printed
    assert cli.seen("secret", "list") == []


def test_a_job_is_listed_run_suspended_and_its_runs_are_shown(cli: SystemCliServer, file: Path) -> None:
    file.write_text("jobs:\n  report: {command: work, schedule: '0 3 * * *', time_zone: Europe/Berlin}\n")
    cli.done("deploy", "shop", "--file", str(file), "--wait")
    assert "0 3 * * * (Europe/Berlin)" in " ".join(cli.done("job", "list", "shop").split())
    cli.done("job", "run", "shop", "/report", "--wait")
    assert "job /report is active, runs at 0 3 * * * (Europe/Berlin), last run succeeded" in cli.done("status", "shop")
    (run,) = cli.seen("job", "runs", "shop", "/report")
    assert run["state"] == "succeeded"
    assert "request" in cli.done("job", "runs", "shop")
    assert cli.seen("job", "logs", "shop", run["id"]) == []
    cli.done("job", "suspend", "shop", "/report")
    assert cli.seen("job", "list", "shop")[0]["next"] is None
    cli.done("job", "resume", "shop", "/report")
    cli.backend.hang("/report")
    (asked,) = cli.seen("job", "run", "shop", "/report")
    cli.done("job", "cancel", "shop", asked["id"])
    wait_until(lambda: cli.seen("job", "runs", "shop")[0]["state"] == "cancelled")
    cli.backend.mend_all()
    cli.backend.fail("/report")
    failed = cli.run("system", "job", "run", "shop", "/report", "--wait")
    assert failed.exit_code != 0
    assert "1 instance failed, with 0 retries" in failed.output
