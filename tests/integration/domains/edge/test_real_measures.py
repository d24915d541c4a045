"""Measures of real processes: a real agent measures and probes real apps, and the controller acts on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.domains.edge.process_deployment import SHOWN, ProcessDeployment, kill, open_deployment
from tests.integration.server.server_processes import invoke

HERE = "/cloudlets/munich"
CLUSTER = f"{HERE}/clusterinsts/c1"
APP = f"{CLUSTER}/appinsts/web"

BURNER = """
import os, socket, time
server = socket.create_server(("127.0.0.1", 0))
while True:
    end = time.monotonic() + 0.02
    while os.path.exists({flag!r}) and time.monotonic() < end:
        pass
    time.sleep(0.001 if os.path.exists({flag!r}) else 0.05)
"""
"""A program that uses a core while a file exists; it listens, and accepts nothing."""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessDeployment]:
    with open_deployment(tmp_path_factory.mktemp("field")) as opened:
        opened.call("POST", "/cloudlets", {"name": "munich"})
        opened.work()
        opened.until(HERE, "Ready")
        yield opened


def flag(deployment: ProcessDeployment, name: str) -> Path:
    """Return a file that the apps see, and that tells them something while it exists."""
    return deployment.folder / SHOWN / name


def nodes(deployment: ProcessDeployment) -> int:
    return int(deployment.get(CLUSTER)["spec"]["nodes"])


def test_a_cluster_under_real_load_scales_up_and_later_down(deployment: ProcessDeployment) -> None:
    busy = flag(deployment, "busy")
    program = flag(deployment, "burner.py")
    program.write_text(BURNER.format(flag=str(busy)))
    deployment.call("PUT", "/autoscale/busy", {"min": 1, "max": 2, "cpu": 0.15}, 200)
    deployment.call("POST", f"{HERE}/clusterinsts", {"name": "c1", "autoscale": "busy"})
    deployment.until(CLUSTER, "Ready")
    deployment.call("PUT", "/apps/web", {"command": f"/usr/bin/python3 {program}"}, 200)
    deployment.call("POST", f"{CLUSTER}/appinsts", {"app": "web"})
    deployment.until(APP, "Ready")
    deployment.until_true(lambda: (deployment.get(APP)["load"] or {}).get("cpu") is not None)
    assert nodes(deployment) == 1
    busy.touch()
    deployment.until_true(lambda: nodes(deployment) == 2)
    deployment.until(CLUSTER, "Ready")
    deployment.until_true(lambda: deployment.nodes("c1") == 2)
    load = deployment.get(APP)["load"]
    assert load["cpu"] > 0.15
    assert load["mem"] > 2**20
    shown = invoke("edge", "clusterinst", "show", "munich/c1", *where(deployment))
    assert "cores" in shown.stdout
    assert "MiB" in shown.stdout
    busy.unlink()
    deployment.until_true(lambda: nodes(deployment) == 1)
    deployment.until_true(lambda: deployment.nodes("c1") == 1)
    assert {one["who"] for one in history(deployment, "munich:c1") if one["event"] == "update"} == {"autoscale"}


def test_an_unhealthy_app_and_one_that_was_killed_have_alerts_that_end(deployment: ProcessDeployment) -> None:
    ill = flag(deployment, "ill")
    probe = {"type": "command", "command": f"test ! -e {ill}", "interval_s": 0.2, "threshold": 2}
    deployment.call("POST", f"{HERE}/clusterinsts", {"name": "c2"})
    deployment.until(f"{HERE}/clusterinsts/c2", "Ready")
    deployment.call("PUT", "/apps/probed", {"command": "sleep 1000", "probe": probe}, 200)
    app = f"{HERE}/clusterinsts/c2/appinsts/probed"
    deployment.call("POST", f"{HERE}/clusterinsts/c2/appinsts", {"app": "probed"})
    deployment.until(app, "Ready")
    deployment.until_true(lambda: (deployment.get(app)["load"] or {}).get("healthy") is True)
    ill.touch()
    deployment.until_true(lambda: alerts(deployment, app) == ["unhealthy"])
    shown = invoke("edge", "appinst", "show", "munich/c2/probed", *where(deployment))
    assert "unhealthy" in shown.stdout
    ill.unlink()
    deployment.until_true(lambda: alerts(deployment, app) == [])
    before = deployment.get(app)["conditions"]["generation"]
    (process,) = deployment.apps("c2:probed")
    kill(process)
    deployment.until_true(lambda: deployment.get(app)["conditions"]["generation"] != before)
    deployment.until(app, "Ready", missing=False)
    deployment.until_true(lambda: alerts(deployment, app) == [])
    told = [one["event"] for one in history(deployment, "munich:c2:probed")]
    wanted = ["unhealthy", "unhealthy ended", "app down", "app down ended"]
    assert [one for one in told if one in wanted] == wanted
    reasons = [one["reason"] for one in history(deployment, "munich:c2:probed") if one["event"] == "app down"]
    assert reasons == ["1 of 1 processes do not run"]


def alerts(deployment: ProcessDeployment, path: str) -> list[str]:
    return [one["name"] for one in deployment.get(path)["conditions"]["alerts"]]


def history(deployment: ProcessDeployment, id_: str) -> list[dict[str, str]]:
    found = deployment.client.get(f"/api/v1/ns/lab/objects/{id_}/history?limit=1000").json()["items"]
    return sorted(found, key=lambda one: int(one["seq"]))


def where(deployment: ProcessDeployment) -> tuple[str, ...]:
    return "--server", deployment.server.url, "--token", deployment.server.token, "--namespace", "lab"
