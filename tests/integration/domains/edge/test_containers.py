"""Containers of a real Podman under a real agent and a real controller.

One cloudlet goes through all of it. What the engine has is compared with the records: nothing is doubled or left.
"""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest

from tests.containers import IMAGE, PodmanService, busybox_archive, missing_for_podman
from tests.integration.containers.image_registry import ImageRegistry, digest_of
from tests.integration.domains.edge.process_deployment import ProcessDeployment, events, open_deployment
from tests.kept_ports import keep_port

HERE = "/cloudlets/munich"
CLUSTER = f"{HERE}/clusterinsts/c1"
APP = f"{CLUSTER}/appinsts/web"
PORT, TAKEN = keep_port(), keep_port()
ANY_PORT = [{"port": 8000, "published": True}]
PASSWORD = "pass-word-1"
SMALL_DISK_BYTES = 12 << 20
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
                "resources": {"cpu": 0.1, "memory_mib": 32, "pids": 50},
                "stop_grace_s": 1,
                **fields,
            }
        ]
    }


class Host:
    """What the engine has of a deployment's agent, as the engine tells."""

    def __init__(self, podman: PodmanService, deployment: ProcessDeployment) -> None:
        self._podman = podman
        self._label = f"stateward.agent={(deployment.folder / 'site' / 'installation').read_text()}"
        self._http = httpx.Client(transport=httpx.HTTPTransport(uds=str(podman.socket), retries=5), timeout=60)

    def close(self) -> None:
        self._http.close()

    def containers(self) -> list[dict[str, Any]]:
        query = {"all": "true", "filters": json.dumps({"label": [self._label]})}
        found: list[dict[str, Any]] = self._http.get("http://engine/v1.41/containers/json", params=query).json()
        return found

    def running(self, generation: int = 0) -> int:
        """Count the containers that run, of one generation or of all."""
        up = [one for one in self.containers() if one["State"] == "running"]
        label = "stateward.generation"
        return len([one for one in up if not generation or one["Labels"][label] == str(generation)])

    def networks(self) -> list[str]:
        return self._lines("network", "ls")

    def everything(self) -> tuple[int, int, int]:
        return len(self.containers()), len(self.networks()), len(self._lines("volume", "ls"))

    def _lines(self, *words: str) -> list[str]:
        return self._podman.run(*words, "--filter", f"label={self._label}", "--format", "{{.Name}}").split()


@contextmanager
def open_cloudlet(folder: Path, podman: PodmanService, *options: str) -> Iterator[ProcessDeployment]:
    """Open a deployment whose cloudlet has a cluster of containers."""
    with open_deployment(folder) as opened:
        opened.agent_options = "--backend", "container", "--engine", podman.address, *options
        opened.call("POST", "/cloudlets", {"name": "munich", "backend": "container"})
        opened.work()
        opened.until(HERE, "Ready")
        opened.call("PUT", "/flavors/small", {"size": "any", "cores": 0.5, "memory": 128 << 20}, 200)
        create_cluster(opened)
        yield opened


def create_cluster(deployment: ProcessDeployment) -> None:
    deployment.call("POST", f"{HERE}/clusterinsts", {"name": "c1", "flavor": "small"})
    deployment.until(CLUSTER, "Ready")


class Images(NamedTuple):
    """The images that an agent can get: from a registry that wants a login, and from a folder of archives."""

    registry: ImageRegistry
    name: str
    folder: Path


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    registry = ImageRegistry("box", "1", busybox_archive(), ("anna", PASSWORD))
    with registry.serve() as name:
        yield Images(registry, name, tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def deployment(
    podman: PodmanService, images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProcessDeployment]:
    logins = images.folder.with_name("logins.json")
    logins.touch(0o600)
    server = images.name.partition("/")[0]
    logins.write_bytes(msgspec.json.encode({server: {"username": "anna", "password": PASSWORD}}))
    options = "--images", str(images.folder), "--registry-logins", str(logins)
    with open_cloudlet(tmp_path_factory.mktemp("field"), podman, *options) as opened:
        yield opened
        remove(opened, CLUSTER)  # with its network: other tests have the same Podman


def published(deployment: ProcessDeployment, app: str) -> int:
    """Return the one port of an app that is published, once the agent has told it."""
    deployment.until_true(lambda: len(deployment.get(app)["ports"]) == 1)
    return int(deployment.get(app)["ports"][0]["host_port"])


def answer(port: int = PORT) -> str:
    """Return what the app answers at its published port."""
    end = time.monotonic() + 30
    while True:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/", trust_env=False, verify=False).text.strip()
        except httpx.HTTPError:
            assert time.monotonic() < end
            time.sleep(0.05)


@pytest.fixture
def host(podman: PodmanService, deployment: ProcessDeployment) -> Iterator[Host]:
    found = Host(podman, deployment)
    yield found
    found.close()
    for one in deployment.get("/appinsts"):  # of a test that has failed
        remove(deployment, f"{CLUSTER}/appinsts/{one['id'].rpartition(':')[2]}")


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
    (network,) = host.networks()
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
    assert {
        httpx.get(f"http://127.0.0.1:{one['host_port']}/", trust_env=False, verify=False).text for one in ports
    } == {"three\n"}
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
    app = deploy(deployment, "web", web("again", ports=ANY_PORT))
    deployment.until(app, "Ready")
    for words in (("kill",), ("rm", "--force", "--time=0")):
        before = generation(deployment, app)
        with deployment.stopped_agent():  # Podman kills what it removes: the agent is to see the end of it alone
            podman.run(*words, host.containers()[0]["Id"])
        deployment.until_true(lambda before=before: generation(deployment, app) != before)  # type: ignore[misc]
        deployment.until(app, "Ready", missing=False)
        assert (host.running(), answer(published(deployment, app))) == (1, "again")
    found = deployment.client.get("/api/v1/ns/lab/objects/munich:c1:web/history?limit=1000").json()["items"]
    reasons = [one["reason"] for one in found if one["event"] == "app down"]
    for why in ("has ended with exit code 137", "is gone"):
        assert any(f"web/0 {why}" in one for one in reasons), reasons
    remove(deployment, app)


def test_what_is_changed_by_hand_is_told_and_left_if_the_policy_says_so(
    deployment: ProcessDeployment, podman: PodmanService, host: Host
) -> None:
    deployment.until(deploy(deployment, "web", web("again", ports=ANY_PORT)), "Ready")
    deployment.call("PATCH", HERE, {"missing": "leave"}, 200)
    (container,), (network,), before = host.containers(), host.networks(), generation(deployment, APP)
    for change, repair, why in (
        (("pause",), ("unpause",), "is paused"),
        (("stop", "--time=0"), ("start",), "has ended with exit code 137"),
    ):
        podman.run(*change, container["Id"])
        down = deployment.until(APP, "Ready", missing=True)
        (alert,) = down["conditions"]["alerts"]
        assert (alert["name"], down["ports"]) == ("app down", [])
        assert f"web/0 {why}" in alert["reason"]
        podman.run(*repair, container["Id"])
        deployment.until(APP, "Ready", missing=False, alerts=[])
        assert (generation(deployment, APP), answer(published(deployment, APP))) == (before, "again")
    podman.run("network", "disconnect", "--force", network, container["Id"])
    down = deployment.until(APP, "Ready", missing=True)
    assert "web/0 is not in the network of its cluster" in down["conditions"]["alerts"][0]["reason"]
    deployment.call("PATCH", HERE, {"missing": "recreate"}, 200)
    deployment.until_true(lambda: generation(deployment, APP) != before)
    deployment.until(APP, "Ready", missing=False)
    assert (host.running(), answer(published(deployment, APP))) == (1, "again")
    remove(deployment, APP)
    assert host.everything() == (0, 1, 0)


def test_an_engine_that_is_down_is_told_and_what_it_runs_is_left_alone(
    deployment: ProcessDeployment, podman: PodmanService, host: Host
) -> None:
    app = deploy(deployment, "web", web("on", probe={"type": "http", "port": 8000, "path": "/", "interval_s": 1}))
    deployment.until(app, "Ready")
    deployment.until_true(lambda: (deployment.get(app)["load"] or {}).get("healthy") is True)
    asked = deployment.get(app)["load"]["requests"]
    before, held = generation(deployment, app), [socket.create_connection(("127.0.0.1", PORT)) for _ in range(2)]
    deployment.until_true(lambda: deployment.get(app)["load"]["connections"] == 2)
    assert deployment.get(CLUSTER)["load"]["connections"] == 2
    assert deployment.get(app)["load"]["requests"] == asked + 2  # probes are none
    podman.kill()
    deployment.until_true(lambda: bool(deployment.get(HERE)["conditions"]["alerts"]))
    (alert,) = deployment.get(HERE)["conditions"]["alerts"]
    assert alert["name"] == "site unreachable"
    assert "no answer of the container engine" in alert["reason"]
    deployment.until_true(lambda: deployment.get(app)["load"] is None)  # unknown, not zero
    assert (deployment.get(app)["state"], answer()) == ("Ready", "on")
    podman.start()
    deployment.until(HERE, "Ready", alerts=[])
    deployment.until_true(lambda: (deployment.get(app)["load"] or {}).get("connections") == 2)
    for one in held:
        one.close()
    assert (generation(deployment, app), host.running()) == (before, 1)
    remove(deployment, app)


def test_images_come_from_archives_and_from_registries_with_a_login(
    deployment: ProcessDeployment, podman: PodmanService, images: Images, host: Host
) -> None:
    podman.run("tag", IMAGE, "localhost/kept:7")
    podman.run("save", "--output", str(images.folder / "kept.tar"), "localhost/kept:7")
    podman.run("rmi", "localhost/kept:7")
    pinned = f"{images.name}@{images.registry.digest}"
    sources: tuple[dict[str, Any], ...] = {"image": "localhost/kept:7", "archive": "kept.tar"}, {"image": pinned}
    for number, fields in enumerate(sources):
        app = deploy(deployment, f"image{number}", web("here", **fields))
        deployment.until(app, "Ready")
        assert answer() == "here"
        remove(deployment, app)
    assert host.everything() == (0, 1, 0)


def test_faults_of_containers_are_told_and_leave_nothing(
    deployment: ProcessDeployment, images: Images, host: Host
) -> None:
    (images.folder / "broken.tar").write_bytes(b"no archive")
    server = images.name.partition("/")[0]
    other = digest_of(b"another image")
    faults: tuple[tuple[dict[str, Any], str], ...] = (
        (
            {"command": ["sh", "-c", "echo no luck; exit 3"]},
            "has ended with exit code 3 at once; its last output: no luck",
        ),
        ({"command": "tail /dev/zero", "resources": {"memory_mib": 8}}, "out of memory"),
        ({"image": "localhost/none:1"}, "none:1"),
        ({"archive": "none.tar", "image": "localhost/none:1"}, "there is no file 'none.tar'"),
        ({"archive": "broken.tar", "image": "localhost/none:1"}, "refused load images"),
        ({"image": f"{images.name}@{other}"}, f"{server}/box@{other} (image missing)"),
        ({"image": f"localhost{images.name.removeprefix('127.0.0.1')}:1"}, "refused pull"),  # there is no such login
        ({"ports": [{"port": 8000, "published": True, "host_port": TAKEN}]}, "(port taken)"),
    )
    holder = socket.create_server(("127.0.0.1", TAKEN))
    for number, (fields, why) in enumerate(faults):
        deployment.call("PUT", f"/apps/bad{number}", web("bad", **fields), 200)
        made = deployment.call("POST", f"{CLUSTER}/appinsts", {"app": f"bad{number}"})
        assert why in (told := events(deployment.client, made["operation"]["id"])), told
        assert PASSWORD not in told
        deployment.until(f"{CLUSTER}/appinsts/bad{number}", "NotPresent")
    holder.close()
    deployment.until_true(lambda: host.everything() == (0, 1, 0))


def test_a_cluster_takes_its_network_along(deployment: ProcessDeployment, host: Host) -> None:
    remove(deployment, CLUSTER)
    assert host.everything() == (0, 0, 0)
    create_cluster(deployment)


@pytest.mark.long
def test_a_frozen_engine_fails_an_order_and_what_it_has_created_is_removed_when_it_goes_on(tmp_path: Path) -> None:
    """Orders wait for a minute; the undo comes before the engine goes on, and again after it."""
    with own_podman() as podman, open_cloudlet(tmp_path, podman) as deployment:
        host = Host(podman, deployment)
        deployment.call("PUT", "/apps/many", web("many", count=3), 200)
        made = deployment.call("POST", f"{CLUSTER}/appinsts", {"app": "many"})
        deployment.until_true(lambda: len(host.containers()) > 0)
        podman.freeze()
        deployment.until_true(lambda: bool(deployment.get(HERE)["conditions"]["alerts"]))
        told = events(deployment.client, made["operation"]["id"])
        assert "no answer of the container engine" in told
        assert '"status":"failed"' in told
        podman.thaw()
        deployment.until(f"{CLUSTER}/appinsts/many", "NotPresent")
        deployment.until_true(lambda: host.everything() == (0, 1, 0))
        deployment.until(HERE, "Ready", alerts=[])
        host.close()


@pytest.mark.long
def test_a_full_disk_is_told_and_left_as_it_was(tmp_path: Path) -> None:
    with own_podman(SMALL_DISK_BYTES) as podman, open_cloudlet(tmp_path, podman) as deployment:
        host = Host(podman, deployment)
        deployment.call("PUT", "/apps/large", web("large", count=12, resources={}), 200)
        made = deployment.call("POST", f"{CLUSTER}/appinsts", {"app": "large"})
        told = events(deployment.client, made["operation"]["id"])
        assert "(out of disk)" in told
        deployment.until(f"{CLUSTER}/appinsts/large", "NotPresent")
        assert host.everything() == (0, 1, 0)
        deployment.until(deploy(deployment, "small", web("small")), "Ready")
        assert answer() == "small"
        host.close()


@contextmanager
def own_podman(disk_bytes: int = 0) -> Iterator[PodmanService]:
    """Start a Podman for one test alone."""
    if missing := missing_for_podman():
        pytest.skip(f"{missing}: real containers are NOT tested here")
    service = PodmanService(disk_bytes)
    try:
        yield service
    finally:
        service.stop()
