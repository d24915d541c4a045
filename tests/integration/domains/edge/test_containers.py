"""Containers of a real Podman under a real agent and a real controller.

One cloudlet goes through all of it. What the engine has is compared with the records: nothing is doubled or left.
"""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from tests.containers import IMAGE, PodmanService
from tests.integration.domains.edge.process_deployment import ProcessDeployment, events, open_deployment

HERE = "/cloudlets/munich"
CLUSTER = f"{HERE}/clusterinsts/c1"
APP = f"{CLUSTER}/appinsts/web"
PORT = 18_473
SERVE = "mkdir -p /data; echo %s > /data/index.html; trap exit TERM; httpd -f -p 8000 -h /data & wait"


def web(text: str, count: int = 1, **fields: Any) -> dict[str, Any]:
    """Return the manifest of an app that answers HTTP at a published port."""
    port = {"port": 8000, "published": True, "host_port": PORT if count == 1 else 0}
    return {
        "parts": [
            {
                "name": "web",
                "image": IMAGE,
                "command": SERVE % text,
                "count": count,
                "ports": [port],
                "volumes": [{"name": "data", "path": "/data"}],
                "resources": {"cpu": 0.5, "memory_mib": 32, "pids": 50},
                "stop_grace_s": 1,
                **fields,
            }
        ]
    }


class Host:
    """What the engine has, as its own command line tells."""

    def __init__(self, podman: PodmanService) -> None:
        self._podman = podman

    def containers(self) -> list[dict[str, Any]]:
        return msgspec.json.decode(self._podman.run("ps", "--all", "--format", "json") or "[]") or []

    def running(self) -> list[str]:
        return sorted(one["Names"][0] for one in self.containers() if one["State"] == "running")

    def everything(self) -> tuple[int, int, int]:
        networks = [one for one in self._lines("network", "ls") if one.startswith("sw.")]
        return len(self.containers()), len(networks), len(self._lines("volume", "ls"))

    def _lines(self, *words: str) -> list[str]:
        return self._podman.run(*words, "--format", "{{.Name}}").split()


@pytest.fixture
def deployment(podman: PodmanService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessDeployment]:
    with open_deployment(tmp_path_factory.mktemp("field")) as opened:
        opened.agent_options = "--backend", "container", "--engine", podman.address
        opened.call("POST", "/cloudlets", {"name": "munich", "backend": "container"})
        opened.work()
        opened.until(HERE, "Ready")
        yield opened


def answer() -> str:
    """Return what the app answers at its published port."""
    end = time.monotonic() + 30
    while True:
        try:
            return httpx.get(f"http://127.0.0.1:{PORT}/", trust_env=False).text.strip()
        except httpx.HTTPError:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_an_app_of_containers_from_creation_to_deletion(deployment: ProcessDeployment, podman: PodmanService) -> None:
    host = Host(podman)
    deployment.call("PUT", "/flavors/small", {"size": "2c128m"}, 200)
    deployment.call("POST", f"{HERE}/clusterinsts", {"name": "c1", "flavor": "small"})
    deployment.until(CLUSTER, "Ready")
    deployment.call("PUT", "/apps/web", web("one"), 200)
    made = deployment.call("POST", f"{CLUSTER}/appinsts", {"app": "web"})
    assert '"status":"succeeded"' in (told := events(deployment.client, made["operation"]["id"])), told
    assert "starting container" in told
    assert f"is published at 127.0.0.1:{PORT}" in told
    assert answer() == "one"
    deployment.call("PATCH", APP, web("two"))
    deployment.until(APP, "Ready")
    assert answer() == "two"
    deployment.call("PATCH", APP, web("three", count=3))
    deployment.call("PATCH", CLUSTER, {"nodes": 2}, 409)
    deployment.until(APP, "Ready")
    assert len(host.running()) == 3
    deployment.call("PATCH", CLUSTER, {"nodes": 2})
    deployment.until(CLUSTER, "Ready")
    assert host.everything() == (3, 1, 1)
    deployment.call("DELETE", APP)
    deployment.until(APP, "NotPresent")
    deployment.call("DELETE", CLUSTER)
    deployment.until(CLUSTER, "NotPresent")
    assert host.everything() == (0, 0, 0)
