"""Real processes: clusters and apps on this machine, and everything killed and cut that can be.

One controller and one agent go through all of it, one fault after the other, as in a bad week.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.domains.edge.field import Field, events, kill, open_field, program, release
from tests.integration.server.processes import Process, run

FAULTS = ("controller", "agent", "cut", "both")


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    with open_field(tmp_path_factory.mktemp("field")) as opened:
        opened.call("POST", "/cloudlets", {"name": "munich"})
        opened.work()
        opened.until("/cloudlets/munich", "Ready")
        yield opened


def suffer(field: Field, fault: str) -> None:
    """Let something bad happen, and end."""
    if fault in ("agent", "both"):
        field.kill_agent()
    if fault in ("controller", "both"):
        field.kill_controller()
        field.serve()
    if fault == "cut":
        field.proxy.drop()
        field.until("/cloudlets/munich", "Offline")
        field.proxy.heal()
    if fault in ("agent", "both"):
        field.work()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_cluster_is_made_changed_and_removed_once_whatever_dies_meanwhile(field: Field, fault: str) -> None:
    gate = field.folder / f"gate-{fault}"
    setup = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    here = f"/cloudlets/munich/clusterinsts/{fault}"
    field.call("POST", "/cloudlets/munich/clusterinsts", {"name": fault, "nodes": 2, "setup": setup})
    field.until(here, "Creating")
    suffer(field, fault)
    gate.touch()
    field.until(here, "Ready")
    assert field.nodes(fault) == 2

    gate.unlink()
    field.call("PATCH", here, {"nodes": 3})
    field.until(here, "Updating")
    suffer(field, fault)
    gate.touch()
    assert field.until(here, "Ready")["spec"]["nodes"] == 3
    assert field.nodes(fault) == 3

    field.until("/cloudlets/munich", "Ready")
    field.freeze_agent()
    field.call("DELETE", here)
    field.until(here, "DeleteRequested")
    suffer(field, fault)
    field.thaw_agent()
    field.until(here, "NotPresent")
    assert field.nodes(fault) == 0
    assert field.until("/cloudlets/munich", "Ready")["conditions"]["orphans"] == []


def test_what_was_requested_while_everything_was_down_is_done(field: Field) -> None:
    here = "/cloudlets/munich/clusterinsts/later"
    field.kill_agent()
    field.until("/cloudlets/munich", "Offline")
    field.call("POST", "/cloudlets/munich/clusterinsts", {"name": "later"})
    assert field.get(here)["state"] == "CreateRequested"
    field.kill_controller()
    field.serve()
    field.work()
    field.until(here, "Ready")
    field.call("DELETE", here)
    field.until(here, "NotPresent")


def test_an_app_runs_and_when_it_is_killed_it_is_created_anew(field: Field) -> None:
    cluster, app = "/cloudlets/munich/clusterinsts/c1", "/cloudlets/munich/clusterinsts/c1/appinsts/web"
    field.call("PUT", "/apps/web", {"command": "sleep 1000", "count": 2}, 200)
    field.call("POST", "/cloudlets/munich/clusterinsts", {"name": "c1"})
    field.until(cluster, "Ready")
    made = field.call("POST", f"{cluster}/appinsts", {"app": "web"})
    field.until(app, "Ready")
    said = events(field.client, made["operation"]["id"])
    assert "starting process 2" in said
    assert '"done":2,"total":2' in said
    assert said.rstrip().splitlines()[-1].startswith("data: ")
    first = field.apps("c1:web")
    assert len(first) == 2
    before = field.get(app)["conditions"]["generation"]
    kill(first[0])
    while field.until(app, "Ready", missing=False)["conditions"]["generation"] == before:
        pass
    assert len(field.apps("c1:web")) == 2


def test_an_app_that_cannot_run_fails_and_leaves_nothing_behind(field: Field) -> None:
    field.call("PUT", "/apps/broken", {"command": "exit 1"}, 200)
    made = field.call("POST", "/cloudlets/munich/clusterinsts/c1/appinsts", {"app": "broken"})
    assert "ended at once" in events(field.client, made["operation"]["id"])
    field.until("/cloudlets/munich/clusterinsts/c1/appinsts/broken", "NotPresent")
    assert field.apps("c1:broken") == []


def test_an_update_that_cannot_run_brings_the_previous_one_back(field: Field) -> None:
    app = "/cloudlets/munich/clusterinsts/c1/appinsts/web"
    made = field.call("PATCH", app, {"command": "exit 1", "count": 1})
    assert "ended at once" in events(field.client, made["operation"]["id"])
    found = field.until(app, "Ready")
    assert (found["spec"]["command"], found["spec"]["count"]) == ("sleep 1000", 2)
    assert len(field.apps("c1:web")) == 2


def test_the_command_line_shows_live_lines(field: Field) -> None:
    where = ("--server", field.server.url, "--token", field.server.token, "--namespace", "lab")
    done = run("edge", "clusterinst", "create", "munich/c2", "--nodes", "2", "--wait", "--timeout", "50", *where)
    assert done.returncode == 0, done.stderr
    assert "(2 of 2)" in done.stderr
    assert "Ready" in done.stdout
    shown = run("edge", "cloudlet", "show", "--json", *where)
    assert '"online": true' in shown.stdout or '"online":true' in shown.stdout
    done = run("edge", "clusterinst", "delete", "munich/c2", "--wait", "--timeout", "50", *where)
    assert done.returncode == 0, done.stderr


# --- upgrades, last: from then on another version serves -------------------------------------------------------------


def test_a_version_that_does_not_come_up_is_cleaned_up_and_the_old_one_serves_on(field: Field) -> None:
    program(field.releases, "3.0", "exit 7")
    program(field.releases, "4.0", "exec sleep 1000")
    here = "/cloudlets/munich"
    for version, why in (("3.0", "ended with 7"), ("4.0", "not come up"), ("5.0", "cannot be started")):
        made = field.call("POST", f"{here}/upgrade", {"version": version, "within": 1.0})
        assert why in events(field.client, made["operation"]["id"])
        assert field.until(here, "UpdateError")["conditions"]["version"] != version
        refused = field.call("PATCH", f"{here}/clusterinsts/c1", {"nodes": 2}, 409)
        assert "upgrade has failed" in refused["detail"]
    assert field.call("POST", f"{here}/fix")["object"]["state"] == "Ready"
    field.call("PATCH", f"{here}/clusterinsts/c1", {"nodes": 2})
    field.until(f"{here}/clusterinsts/c1", "Ready")


def test_an_agent_is_upgraded_to_a_real_second_version_and_the_instances_run_on(field: Field) -> None:
    release(field.releases, "9.9")
    running = field.apps("c1:web")
    assert running
    agent = field.agent
    assert agent is not None
    made = field.call("POST", "/cloudlets/munich/upgrade", {"version": "9.9"})
    refused = field.call("PATCH", "/cloudlets/munich/clusterinsts/c1", {"nodes": 3}, 409)
    assert "being upgraded" in refused["detail"]
    assert '"status":"succeeded"' in events(field.client, made["operation"]["id"])
    assert field.until("/cloudlets/munich", "Ready", version="9.9", online=True)
    assert agent.ended() == 0
    assert field.apps("c1:web") == running
    field.call("PATCH", "/cloudlets/munich/clusterinsts/c1", {"nodes": 3})
    field.until("/cloudlets/munich/clusterinsts/c1", "Ready")


def test_a_token_speaks_for_its_cloudlet_alone(field: Field, tmp_path: Path) -> None:
    field.call("POST", "/cloudlets", {"name": "berlin"})
    stranger = Process(
        tmp_path / "agent", "agent", "--controller", f"ws://127.0.0.1:{field.proxy.port}", "--cloudlet", "berlin",
        "--namespace", "lab", "--token-file", str(field.folder / "token"), "--driver", "simulated",
        "--data", str(tmp_path / "site"),
    )  # fmt: skip
    stranger.until("the token is not for this cloudlet")
    stranger.stop()
    assert field.get("/cloudlets/berlin")["state"] == "Init"
