"""Containers of a real Podman under a real agent and a real controller.

One cloudlet goes through all of it. What the engine has is compared with the records: nothing is doubled or left.
"""

import time
from collections.abc import Iterator
from typing import Any

import httpx
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
    """What the engine has, as it tells itself."""

    def __init__(self, podman: PodmanService) -> None:
        self._podman = podman
        self._http = httpx.Client(transport=httpx.HTTPTransport(uds=str(podman.socket), retries=5), timeout=60)

    def close(self) -> None:
        self._http.close()

    def containers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._http.get("http://engine/v1.41/containers/json?all=true").json()
        return found

    def running(self, generation: int = 0) -> int:
        """Count the containers that run, of one generation or of all."""
        up = [one for one in self.containers() if one["State"] == "running"]
        label = "stateward.generation"
        return len([one for one in up if not generation or one["Labels"][label] == str(generation)])

    def everything(self) -> tuple[int, int, int]:
        networks = [one for one in self._lines("network", "ls") if one.startswith("sw.")]
        return len(self.containers()), len(networks), len(self._lines("volume", "ls"))

    def _lines(self, *words: str) -> list[str]:
        return self._podman.run(*words, "--format", "{{.Name}}").split()


@pytest.fixture(scope="module")
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


@pytest.fixture
def host(podman: PodmanService) -> Iterator[Host]:
    found = Host(podman)
    yield found
    found.close()


@pytest.fixture(scope="module", autouse=True)
def _cluster(deployment: ProcessDeployment) -> None:
    deployment.call("PUT", "/flavors/small", {"size": "2c128m"}, 200)
    deployment.call("POST", f"{HERE}/clusterinsts", {"name": "c1", "flavor": "small"})
    deployment.until(CLUSTER, "Ready")


def deploy(deployment: ProcessDeployment, name: str, manifest: dict[str, Any]) -> str:
    """Deploy an app; returns the path of its instance."""
    deployment.call("PUT", f"/apps/{name}", manifest, 200)
    deployment.call("POST", f"{CLUSTER}/appinsts", {"app": name})
    return f"{CLUSTER}/appinsts/{name}"


def remove(deployment: ProcessDeployment, app: str) -> None:
    deployment.call("DELETE", app)
    deployment.until(app, "NotPresent")


def generation(deployment: ProcessDeployment, app: str) -> int:
    return int(deployment.get(app)["conditions"]["generation"])


def test_an_app_of_containers_from_creation_to_deletion(
    deployment: ProcessDeployment, podman: PodmanService, host: Host
) -> None:
    (network,) = [one for one in podman.run("network", "ls", "--format", "{{.Name}}").split() if one.startswith("sw.")]
    assert '"isolate": "true"' in podman.run("network", "inspect", network)
    deployment.call("PUT", "/apps/web", web("one"), 200)
    made = deployment.call("POST", f"{CLUSTER}/appinsts", {"app": "web"})
    assert '"status":"succeeded"' in (told := events(deployment.client, made["operation"]["id"])), told
    assert "starting container" in told
    assert f"published: web/0: 8000/tcp at 127.0.0.1:{PORT}" in told
    assert [one["host_port"] for one in deployment.get(APP)["ports"]] == [PORT]
    assert answer() == "one"
    deployment.call("PATCH", APP, web("two"))
    deployment.until(APP, "Ready")
    assert answer() == "two"
    deployment.call("PATCH", APP, web("three", count=3))
    deployment.call("PATCH", CLUSTER, {"nodes": 2}, 409)
    deployment.until(APP, "Ready")
    assert host.running() == 3
    ports = deployment.get(APP)["ports"]
    assert [one["part"] for one in ports] == ["web/0", "web/1", "web/2"]
    assert {httpx.get(f"http://127.0.0.1:{one['host_port']}/", trust_env=False).text for one in ports} == {"three\n"}
    deployment.call("PATCH", CLUSTER, {"nodes": 2})
    deployment.until(CLUSTER, "Ready")
    assert host.everything() == (3, 1, 1)
    assert [one["part"] for one in deployment.get(f"{APP}/logs?part=web/2")] == ["web/2"]
    done = deployment.call("POST", f"{APP}/exec", {"argv": ["cat", "/data/index.html"], "part": "web/1"}, 200)
    assert (done["status"], done["written"]) == (0, "three\n")
    remove(deployment, APP)
    assert host.everything() == (0, 1, 0)


def test_what_dies_at_any_point_leaves_nothing_doubled_and_nothing_behind(
    deployment: ProcessDeployment, podman: PodmanService, host: Host
) -> None:
    manifest = web("many", count=3)
    app = deploy(deployment, "many", manifest)
    deployment.until_true(lambda: len(host.containers()) > 0)
    deployment.kill_agent()  # while it creates containers
    deployment.work()
    deployment.until(app, "Ready")
    assert (host.running(generation(deployment, app)), host.everything()) == (3, (3, 1, 1))
    deployment.call("PATCH", app, web("more", count=3))
    deployment.until_true(lambda: len(host.containers()) > 3)
    podman.kill()  # while new containers stand beside the old ones
    deployment.kill_agent()
    podman.start()
    deployment.work()
    deployment.until(app, "Ready")
    assert (host.running(generation(deployment, app)), host.everything()) == (3, (3, 1, 1))
    deployment.call("PATCH", app, web("most", count=3))
    deployment.until_true(lambda: len(host.containers()) > 3)
    podman.kill()  # the agent waits for it
    podman.start()
    deployment.until(app, "Ready")
    assert (host.running(generation(deployment, app)), host.everything()) == (3, (3, 1, 1))
    deployment.call("DELETE", app)
    deployment.until_true(lambda: len(host.containers()) < 3)
    deployment.kill_agent()
    deployment.work()
    deployment.until(app, "NotPresent")
    assert host.everything() == (0, 1, 0)


def test_what_is_killed_or_removed_by_hand_is_created_anew_with_the_reason(
    deployment: ProcessDeployment, podman: PodmanService, host: Host
) -> None:
    app = deploy(deployment, "web", web("again"))
    deployment.until(app, "Ready")
    reasons = []
    for words in (("kill",), ("pause",), ("rm", "--force", "--time=0")):
        before = generation(deployment, app)
        podman.run(*words, host.containers()[0]["Id"])
        deployment.until_true(lambda before=before: generation(deployment, app) != before)  # type: ignore[misc]
        deployment.until(app, "Ready", missing=False)
        assert (host.running(), answer()) == (1, "again")
    found = deployment.client.get("/api/v1/ns/lab/objects/munich:c1:web/history?limit=1000").json()["items"]
    reasons = [one["reason"] for one in found if one["event"] == "app down"]
    assert any("web/0 has ended with exit code 137" in one for one in reasons), reasons
    remove(deployment, app)
    assert host.everything() == (0, 1, 0)


def test_faults_of_containers_are_told_and_leave_nothing(deployment: ProcessDeployment, host: Host) -> None:
    faults: tuple[tuple[dict[str, Any], str], ...] = (
        (
            {"command": ["sh", "-c", "echo no luck; exit 3"]},
            "has ended with exit code 3 at once; its last output: no luck",
        ),
        ({"command": "tail /dev/zero", "resources": {"memory_mib": 8}}, "out of memory"),
        ({"image": "localhost/none:1"}, "none:1"),
        ({"archive": "none.tar", "image": "localhost/none:1"}, "no folder of images"),
    )
    for number, (fields, why) in enumerate(faults):
        deployment.call("PUT", f"/apps/bad{number}", web("bad", **fields), 200)
        made = deployment.call("POST", f"{CLUSTER}/appinsts", {"app": f"bad{number}"})
        assert why in (told := events(deployment.client, made["operation"]["id"])), told
        deployment.until(f"{CLUSTER}/appinsts/bad{number}", "NotPresent")
    deployment.until_true(lambda: host.everything() == (0, 1, 0))


def test_a_cluster_takes_its_network_along(deployment: ProcessDeployment, host: Host) -> None:
    remove(deployment, CLUSTER)
    assert host.everything() == (0, 0, 0)
