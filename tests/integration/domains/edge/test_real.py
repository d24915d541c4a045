"""Real processes: clusters and apps on this machine, and agents that are upgraded.

One controller and one cloudlet go through all of it, as in a bad week. What dies in which state is in test_each_state
and test_each_cloudlet_state.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.domains.edge.field import Field, events, gated, kill, let_in, open_field, program, progress
from tests.integration.server.server_processes import Process, run

HERE = "/cloudlets/munich"
CLUSTER = f"{HERE}/clusterinsts/c1"
APP = f"{CLUSTER}/appinsts/web"


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    with open_field(tmp_path_factory.mktemp("field")) as opened:
        opened.call("POST", "/cloudlets", {"name": "munich"})
        opened.work()
        opened.until("/cloudlets/munich", "Ready")
        yield opened


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


def web(field: Field) -> list[int]:
    """Have an app run in a cluster; returns its processes."""
    field.call("PUT", "/apps/web", {"command": "sleep 1000", "count": 2}, 200)
    if not field.has(CLUSTER):
        field.call("POST", f"{HERE}/clusterinsts", {"name": "c1"})
        field.until(CLUSTER, "Ready")
    if not field.has(APP):
        field.call("POST", f"{CLUSTER}/appinsts", {"app": "web"})
        field.until(APP, "Ready")
    field.sure(lambda: len(field.apps("c1:web")) == 2)
    return field.apps("c1:web")


def test_an_app_runs_and_when_it_is_killed_it_is_created_anew(field: Field) -> None:
    first = web(field)
    before = field.get(APP)["conditions"]["generation"]
    kill(first[0])
    field.sure(lambda: field.get(APP)["conditions"]["generation"] != before)
    field.until(APP, "Ready", missing=False)
    field.sure(lambda: len(field.apps("c1:web")) == 2)


def test_what_the_agent_says_is_streamed_and_can_be_replayed_by_anybody_afterwards(field: Field) -> None:
    web(field)
    field.call("PUT", "/apps/pair", {"command": "sleep 1000", "count": 2}, 200)
    made = field.call("POST", f"{CLUSTER}/appinsts", {"app": "pair"})
    live = events(field.client, made["operation"]["id"])
    assert "starting process 2" in live
    assert '"done":2,"total":2' in live
    assert '"status":"succeeded"' in live.rstrip().splitlines()[-1]
    assert progress(events(field.client, made["operation"]["id"])) == progress(live)
    told = run("edge", "progress", made["operation"]["id"], *where(field))
    assert told.returncode == 0, told.stderr
    assert "starting process 2" in told.stdout + told.stderr


def test_an_app_that_cannot_run_fails_and_leaves_nothing_behind(field: Field) -> None:
    web(field)
    field.call("PUT", "/apps/broken", {"command": "exit 1"}, 200)
    made = field.call("POST", f"{CLUSTER}/appinsts", {"app": "broken"})
    assert "ended at once" in events(field.client, made["operation"]["id"])
    field.until(f"{CLUSTER}/appinsts/broken", "NotPresent")
    field.sure(lambda: field.apps("c1:broken") == [])


def test_an_update_that_cannot_run_brings_the_previous_one_back(field: Field) -> None:
    web(field)
    made = field.call("PATCH", APP, {"command": "exit 1", "count": 1})
    assert "ended at once" in events(field.client, made["operation"]["id"])
    found = field.until(APP, "Ready")
    assert (found["spec"]["command"], found["spec"]["count"]) == ("sleep 1000", 2)
    field.sure(lambda: len(field.apps("c1:web")) == 2)


def where(field: Field) -> tuple[str, ...]:
    return "--server", field.server.url, "--token", field.server.token, "--namespace", "lab"


def test_the_command_line_shows_live_lines(field: Field) -> None:
    done = run("edge", "clusterinst", "create", "munich/c2", "--nodes", "2", "--wait", "--timeout", "50", *where(field))
    assert done.returncode == 0, done.stderr
    assert "(2 of 2)" in done.stderr
    assert "Ready" in done.stdout
    shown = run("edge", "cloudlet", "show", "--json", *where(field))
    assert '"online": true' in shown.stdout or '"online":true' in shown.stdout
    done = run("edge", "clusterinst", "delete", "munich/c2", "--wait", "--timeout", "50", *where(field))
    assert done.returncode == 0, done.stderr


# --- upgrades --------------------------------------------------------------------------------------------------------


def test_a_version_that_does_not_come_up_is_cleaned_up_and_the_old_one_serves_on(field: Field) -> None:
    web(field)
    program(field.releases, "3.0", "exit 7")
    program(field.releases, "4.0", "exec sleep 1000")
    serves = field.holder
    for version, within, why in (("3.0", 60, "ended with 7"), ("4.0", 1, "not come up"), ("5.0", 60, "be started")):
        made = field.call("POST", f"{HERE}/upgrade", {"version": version, "within": within})
        assert why in events(field.client, made["operation"]["id"])
        assert field.until(HERE, "UpdateError")["conditions"]["version"] == serves.version
        refused = field.call("PATCH", CLUSTER, {"nodes": 2}, 409)
        assert "upgrade has failed" in refused["detail"]
        field.sure(lambda: field.agents() == [serves.pid])
    assert field.call("POST", f"{HERE}/fix")["object"]["state"] == "Ready"
    field.call("PATCH", CLUSTER, {"nodes": 2})
    field.until(CLUSTER, "Ready")


def test_an_agent_is_upgraded_to_a_real_second_version_and_the_instances_run_on(field: Field) -> None:
    running, before = web(field), field.holder
    gate = gated(field, "9.9")
    made = field.call("POST", f"{HERE}/upgrade", {"version": "9.9"})
    refused = field.call("PATCH", CLUSTER, {"nodes": 3}, 409)
    assert "being upgraded" in refused["detail"]
    gate.touch()
    assert '"status":"succeeded"' in events(field.client, made["operation"]["id"])
    let_in(field, "9.9")
    assert before.pid not in field.agents()
    assert field.apps("c1:web") == running
    field.call("PATCH", CLUSTER, {"nodes": 3})
    field.until(CLUSTER, "Ready")


def test_a_successor_takes_over_though_the_one_that_started_it_has_died(field: Field) -> None:
    gate = gated(field, "11.0")
    field.call("POST", f"{HERE}/upgrade", {"version": "11.0"})
    field.until(HERE, "Updating")
    field.kill_agent()
    gate.touch()
    let_in(field, "11.0")


def test_a_token_speaks_for_its_cloudlet_alone(field: Field, tmp_path: Path) -> None:
    field.call("POST", "/cloudlets", {"name": "berlin"})
    foreign = Process(
        tmp_path / "agent", "agent", "--controller", f"ws://127.0.0.1:{field.proxy.port}", "--cloudlet", "berlin",
        "--namespace", "lab", "--token-file", str(field.folder / "token"), "--driver", "simulated",
        "--data", str(tmp_path / "site"),
    )  # fmt: skip
    foreign.until("the token is not for this cloudlet")
    foreign.stop()
    assert field.get("/cloudlets/berlin")["state"] == "Init"
