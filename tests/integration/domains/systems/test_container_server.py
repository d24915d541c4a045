"""A real server with a real engine: what a pull shows, and that secrets reach containers and no file of the server.

The story is one test, because each of its steps writes something that the scan at its end has to find clean.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx

from tests.containers import PodmanService, busybox_archive
from tests.integration.containers.image_registry import ImageRegistry
from tests.integration.server.server_processes import Served, invoke, served
from tests.waiting import wait_until

VALUE, NEWER, PASSWORD = "hunter2-hunter2-hunter2", "correct horse battery staple", "pass-word-1"
DEFINITION = """
services:
  web:
    image: {image}
    command: [sh, -c, "trap 'exit 0' TERM; sleep 100000 & wait"]
    registry_login: env:SHOP_REGISTRY
    grace: 1
    redeploy_on_secret_change: true
    secrets:
      DB_PASSWORD: {{secret: db}}
      DB_FILE: {{secret: db, as: file, path: db.txt}}
"""
SHOW = ["sh", "-c", 'cat $DB_FILE; echo; echo "$DB_PASSWORD"; stat -c "%a %u" $DB_FILE']


class Shop:
    """A server on a folder, with its administrator."""

    server: Served
    client: httpx.Client

    def __init__(self, folder: Path, podman: PodmanService, registry: str) -> None:
        self.folder = folder
        container = (f"systems_container_engine={podman.address}", "systems_container_namespaces=default")
        self._settings = (*container, "systems_registry_logins=default=env:SHOP_REGISTRY")
        login = {"SERVER": registry.partition("/")[0], "USERNAME": "anna", "PASSWORD": PASSWORD}
        self._environ = {f"SHOP_REGISTRY_{name}": value for name, value in login.items()} | {
            "STATEWARD_ONLY": "systems"
        }

    @contextmanager
    def served(self) -> Iterator[None]:
        """Run the server."""
        flags = [f"--set={one}" for one in self._settings]
        started = served(self.folder / "data", *flags, environ=self._environ)
        with started as self.server, self.server.client() as self.client:
            yield

    def command(self, *words: str) -> str:
        """Run a command, and return what it prints."""
        where = {"STATEWARD_SERVER": self.server.url, "STATEWARD_TOKEN": self.server.token, "COLUMNS": "300"}
        done = invoke(*words, environ=where)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Make a request, and return the answer."""
        answer = self.client.request(method, f"/api/v1/systems/default/{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def finish(self, method: str, path: str, body: object = None) -> None:
        """Make a request, and wait until its operation has succeeded."""
        operation = self.call(method, path, body)["operation"]
        wait_until(lambda: self._status(operation) in ("succeeded", "failed"))
        assert self._status(operation) == "succeeded"

    def _status(self, operation: str) -> str:
        return str(self.client.get(f"/api/v1/ns/default/operations/{operation}").json()["status"])

    def secrets(self) -> list[str]:
        """Return the secret as the service has it, from file and environment, and the file's mode and owner.

        Nothing if no instance runs at the moment.
        """
        answer = self.client.post("/api/v1/systems/default/shop/exec", json={"path": "/web", "argv": SHOW})
        return answer.json()["stdout"].splitlines() if answer.is_success else []


def test_a_pull_is_shown_and_secrets_reach_containers_and_no_file(podman: PodmanService, tmp_path: Path) -> None:
    registry = ImageRegistry("shop/web", token_hex(4), busybox_archive(), ("anna", PASSWORD))
    with registry.serve() as name:
        shop, image = Shop(tmp_path, podman, name), f"{name}:{registry.tag}"
        registry.gives_layers.clear()
        with shop.served():
            shop.call("POST", "-/secrets", {"name": "db", "value": VALUE})
            shop.finish("POST", "", {"name": "shop", "backend": "container"})
            others = DEFINITION.format(image=image).replace("env:SHOP", "file:/etc/passwd#SHOP")
            refused = shop.client.post("/api/v1/systems/default/shop/deploys", json={"definition": others})
            assert refused.status_code == 403
            assert "services/web.registry_login: namespace" in refused.text
            deploy = shop.call("POST", "shop/deploys", {"definition": DEFINITION.format(image=image)})
            wait_until(lambda: f"pulling {image}" in (shop.call("GET", "shop/deploys")[0]["progress"] or ""))
            for words in (("system", "status", "shop"), ("system", "deploys", "shop"), ("why", deploy["id"])):
                assert f"pulling {image}" in shop.command(*words)
            registry.gives_layers.set()
            wait_until(lambda: shop.secrets() == [VALUE, VALUE, "400 0"])
            assert f"{image} is pulled" in shop.command("logs", deploy["operation"])
            shop.server.stop(signal.SIGKILL)
        with shop.served():
            wait_until(lambda: shop.secrets() == [VALUE, VALUE, "400 0"])
            podman.run("rm", "--all", "--force", "--time=0")  # by hand
            podman.run("rmi", "--force", image)  # it is pulled again, by its digest
            wait_until(lambda: registry.digest in podman.run("images", "--digests"))
            wait_until(lambda: shop.secrets() == [VALUE, VALUE, "400 0"])
            shop.call("PUT", "-/secrets/db", {"value": NEWER})
            wait_until(lambda: shop.secrets() == [NEWER, NEWER, "400 0"])
            shop.finish("POST", "-/secret-rotation")
            by_digest = DEFINITION.format(image=f"{name}@{registry.digest}")
            wait_until(lambda: not shop.call("GET", "shop/locks"))
            shop.finish("POST", "shop/deploys", {"definition": by_digest})
            wait_until(lambda: shop.secrets() == [NEWER, NEWER, "400 0"])
            shop.finish("DELETE", "shop")
            shop.call("DELETE", "-/secrets/db")
            assert shop.server.stop() == 0
    assert podman.run("volume", "ls", "--quiet") == ""
    found = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert any(b"secret+db" in content for content in found.values())  # so the scan can find something
    for value in (VALUE, NEWER, PASSWORD):
        assert [str(file) for file, content in found.items() if value.encode() in content] == []
