"""Real processes: clusters and apps on this machine, and agents that are upgraded.

One controller and one cloudlet go through all of it, as in a bad week. What dies in which state is in test_each_state
and test_each_cloudlet_state.
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.integration.domains.edge.process_deployment import (
    ProcessDeployment,
    events,
    install_gated_release,
    kill,
    open_deployment,
    processes,
    program,
    progress,
    until_serving,
)
from tests.integration.server.server_processes import Process, invoke, run

HERE = "/cloudlets/munich"
CLUSTER = f"{HERE}/clusterinsts/c1"
APP = f"{CLUSTER}/appinsts/web"


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessDeployment]:
    with open_deployment(tmp_path_factory.mktemp("field")) as opened:
        opened.call("POST", "/cloudlets", {"name": "munich"})
        opened.work()
        opened.until("/cloudlets/munich", "Ready")
        yield opened


def test_what_was_requested_while_everything_was_down_is_done(deployment: ProcessDeployment) -> None:
    here = "/cloudlets/munich/clusterinsts/later"
    deployment.kill_agent()
    deployment.until("/cloudlets/munich", "Offline")
    deployment.call("POST", "/cloudlets/munich/clusterinsts", {"name": "later"})
    assert deployment.get(here)["state"] == "CreateRequested"
    deployment.kill_controller()
    deployment.serve()
    deployment.work()
    deployment.until(here, "Ready")
    deployment.call("DELETE", here)
    deployment.until(here, "NotPresent")


def web(deployment: ProcessDeployment) -> list[int]:
    """Have an app run in a cluster; returns its processes."""
    deployment.call("PUT", "/apps/web", {"command": "sleep 1000", "count": 2}, 200)
    if not deployment.has(CLUSTER):
        deployment.call("POST", f"{HERE}/clusterinsts", {"name": "c1"})
        deployment.until(CLUSTER, "Ready")
    if not deployment.has(APP):
        deployment.call("POST", f"{CLUSTER}/appinsts", {"app": "web"})
        deployment.until(APP, "Ready")
    deployment.until_true(lambda: len(deployment.apps("c1:web")) == 2)
    return deployment.apps("c1:web")


def test_an_app_runs_and_when_it_is_killed_it_is_created_anew(deployment: ProcessDeployment) -> None:
    first = web(deployment)
    before = deployment.get(APP)["conditions"]["generation"]
    kill(first[0])
    deployment.until_true(lambda: deployment.get(APP)["conditions"]["generation"] != before)
    deployment.until(APP, "Ready", missing=False)
    deployment.until_true(lambda: len(deployment.apps("c1:web")) == 2)


def test_what_the_agent_says_is_streamed_and_can_be_replayed_by_anybody_afterwards(
    deployment: ProcessDeployment,
) -> None:
    web(deployment)
    deployment.call("PUT", "/apps/pair", {"command": "sleep 1000", "count": 2}, 200)
    made = deployment.call("POST", f"{CLUSTER}/appinsts", {"app": "pair"})
    live = events(deployment.client, made["operation"]["id"])
    assert "starting process 2" in live
    assert '"done":2,"total":2' in live
    assert '"status":"succeeded"' in live.rstrip().splitlines()[-1]
    assert progress(events(deployment.client, made["operation"]["id"])) == progress(live)
    told = invoke("edge", "progress", made["operation"]["id"], *where(deployment))
    assert told.returncode == 0, told.stderr
    assert "starting process 2" in told.stdout + told.stderr


def test_an_app_that_cannot_run_fails_and_leaves_nothing_behind(deployment: ProcessDeployment) -> None:
    web(deployment)
    deployment.call("PUT", "/apps/broken", {"command": "exit 1"}, 200)
    made = deployment.call("POST", f"{CLUSTER}/appinsts", {"app": "broken"})
    assert "ended at once" in events(deployment.client, made["operation"]["id"])
    deployment.until(f"{CLUSTER}/appinsts/broken", "NotPresent")
    deployment.until_true(lambda: deployment.apps("c1:broken") == [])


def test_an_update_that_cannot_run_brings_the_previous_one_back(deployment: ProcessDeployment) -> None:
    web(deployment)
    made = deployment.call("PATCH", APP, {"command": "exit 1", "count": 1})
    assert "ended at once" in events(deployment.client, made["operation"]["id"])
    found = deployment.until(APP, "Ready")
    assert (found["spec"]["command"], found["spec"]["count"]) == ("sleep 1000", 2)
    deployment.until_true(lambda: len(deployment.apps("c1:web")) == 2)


def where(deployment: ProcessDeployment) -> tuple[str, ...]:
    return "--server", deployment.server.url, "--token", deployment.server.token, "--namespace", "lab"


def test_the_command_line_shows_live_lines(deployment: ProcessDeployment) -> None:
    done = run(
        "edge", "clusterinst", "create", "munich/c2", "--nodes", "2", "--wait", "--timeout", "50", *where(deployment)
    )
    assert done.returncode == 0, done.stderr
    assert "(2 of 2)" in done.stderr
    assert "Ready" in done.stdout
    shown = invoke("edge", "cloudlet", "show", "--json", *where(deployment))
    assert '"online": true' in shown.stdout or '"online":true' in shown.stdout
    done = invoke("edge", "clusterinst", "delete", "munich/c2", "--wait", "--timeout", "50", *where(deployment))
    assert done.returncode == 0, done.stderr


# --- logs and commands -----------------------------------------------------------------------------------------------


def test_what_an_app_writes_is_read_through_its_agent_and_followed(deployment: ProcessDeployment) -> None:
    web(deployment)
    sign = deployment.shown / "written"
    command = f"echo first; while [ ! -e {sign} ]; do sleep 0.05; done; echo second; sleep 1000"
    deployment.call("PUT", "/apps/talker", {"command": command}, 200)
    deployment.call("POST", f"{CLUSTER}/appinsts", {"app": "talker"})
    talker = f"{CLUSTER}/appinsts/talker"
    deployment.until(talker, "Ready")
    deployment.until_true(lambda: any("first" in one["text"] for one in deployment.get(f"{talker}/logs")))
    (part,) = deployment.get(f"{talker}/logs")
    assert part["text"].splitlines()[-1] == "first"
    told = invoke("edge", "appinst", "logs", "munich/c1/talker", *where(deployment))
    assert "first" in told.stdout, told.stderr
    sign.touch()

    def rest() -> list[str]:
        return [one["text"] for one in deployment.get(f"{talker}/logs?after={part['next']}")]

    deployment.until_true(lambda: rest() == ["second\n"])
    assert [one["text"] for one in deployment.get(f"{talker}/logs?most=7")] == ["second\n"]
    refused = deployment.call("GET", f"{talker}/logs?after=half", status=409)
    assert "not the cursor" in refused["detail"]
    deployment.call("DELETE", talker)
    deployment.until(talker, "NotPresent")


def test_a_command_runs_where_the_app_runs_and_ends_with_its_caller(deployment: ProcessDeployment) -> None:
    web(deployment)
    naps = 10**8 + secrets.randbelow(10**8)  # seconds; no other process of this host sleeps so long
    words = ["sh", "-c", 'echo ${STATEWARD_LABEL##*//} "$1"; exit 3', "sh", "it's; $HOME"]
    found = deployment.call("POST", f"{APP}/exec", {"argv": words}, 200)
    assert found["status"] == 3
    assert found["written"].rstrip().endswith("it's; $HOME")
    done = run("edge", "appinst", "exec", "munich/c1/web", *where(deployment), "--", "sh", "-c", "echo here; exit 4")
    assert (done.returncode, done.stdout) == (4, "here\n"), done.stderr
    tabs = run("edge", "appinst", "exec", "munich/c1/web", *where(deployment), "--", "printf", r"a\tb\033[0m")
    assert tabs.stdout == "a\tb\x1b[0m"
    late = deployment.call("POST", f"{APP}/exec", {"argv": ["sleep", f"{naps}.1"], "within": 0.5}, 409)
    assert "took too long" in late["detail"]
    at = deployment.client.base_url
    with closing(HTTPConnection(at.host, at.port)) as caller:
        headers = {"Content-Type": "application/json", **deployment.client.headers}
        body = json.dumps({"argv": ["sleep", f"{naps}.2"]})
        caller.request("POST", f"/api/v1/edge/ns/lab{APP}/exec", body, headers)
        deployment.until_true(lambda: bool(processes(f"sleep {naps}.2")))
    deployment.until_true(lambda: not processes(f"sleep {naps}"))
    journal = deployment.client.get("/api/v1/journal", params={"ns": "lab", "object": "munich:c1:web"}).text
    assert '"exec"' in journal
    assert str(naps) not in journal
    assert "argv" in deployment.call("POST", f"{APP}/exec", {"argv": []}, 400)["detail"]
    deployment.call("POST", f"{CLUSTER}/appinsts/nothing/exec", {"argv": ["id"]}, 404)


# --- upgrades --------------------------------------------------------------------------------------------------------


def test_a_version_that_does_not_come_up_is_cleaned_up_and_the_old_one_serves_on(deployment: ProcessDeployment) -> None:
    web(deployment)
    program(deployment.releases, "3.0", "exit 7")
    program(deployment.releases, "4.0", "exec sleep 1000")
    serves = deployment.holder
    for version, within, why in (("3.0", 60, "ended with 7"), ("4.0", 1, "not come up"), ("5.0", 60, "be started")):
        made = deployment.call("POST", f"{HERE}/upgrade", {"version": version, "within": within})
        assert why in events(deployment.client, made["operation"]["id"])
        assert deployment.until(HERE, "UpdateError")["conditions"]["version"] == serves.version
        refused = deployment.call("PATCH", CLUSTER, {"nodes": 2}, 409)
        assert "upgrade has failed" in refused["detail"]
        deployment.until_true(lambda: deployment.agents() == [serves.pid])
    assert deployment.call("POST", f"{HERE}/fix")["object"]["state"] == "Ready"
    deployment.call("PATCH", CLUSTER, {"nodes": 2})
    deployment.until(CLUSTER, "Ready")


def test_an_agent_is_upgraded_to_a_real_second_version_and_the_instances_run_on(deployment: ProcessDeployment) -> None:
    running, before = web(deployment), deployment.holder
    gate = install_gated_release(deployment, "9.9")
    made = deployment.call("POST", f"{HERE}/upgrade", {"version": "9.9"})
    refused = deployment.call("PATCH", CLUSTER, {"nodes": 3}, 409)
    assert "being upgraded" in refused["detail"]
    gate.touch()
    assert '"status":"succeeded"' in events(deployment.client, made["operation"]["id"])
    until_serving(deployment, "9.9")
    assert before.pid not in deployment.agents()
    assert deployment.apps("c1:web") == running
    deployment.call("PATCH", CLUSTER, {"nodes": 3})
    deployment.until(CLUSTER, "Ready")


def test_a_successor_takes_over_though_the_one_that_started_it_has_died(deployment: ProcessDeployment) -> None:
    gate = install_gated_release(deployment, "11.0")
    deployment.call("POST", f"{HERE}/upgrade", {"version": "11.0"})
    deployment.until(HERE, "Updating")
    deployment.kill_agent()
    gate.touch()
    until_serving(deployment, "11.0")


def test_a_token_speaks_for_its_cloudlet_alone(deployment: ProcessDeployment, tmp_path: Path) -> None:
    deployment.call("POST", "/cloudlets", {"name": "berlin"})
    foreign = Process(
        tmp_path / "agent", "agent", "--controller", f"ws://127.0.0.1:{deployment.proxy.port}", "--cloudlet", "berlin",
        "--namespace", "lab", "--token-file", str(deployment.folder / "token"), "--driver", "simulated",
        "--data", str(tmp_path / "site"),
    )  # fmt: skip
    foreign.until("the token is not for this cloudlet")
    foreign.stop()
    assert deployment.get("/cloudlets/berlin")["state"] == "Init"
