"""A server that is killed while it deploys, updates and deletes containers: nothing is doubled, and nothing leaks."""

# real time: kills and pauses come at times that a seed draws; each outcome is judged, none is expected
import signal
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import httpx
import msgspec
import pytest

from stateward.domains.systems.backends.container.container_specs import LABEL
from tests.containers import IMAGE, PodmanService
from tests.integration.server.server_processes import Served
from tests.long_forms import in_long_form

SYSTEM = "/api/v1/systems/default/shop"
PATIENT_S = 120.0
SERVICES = ("web", "store")
DEFINITION = """
services:
  web: {{{common}, instances: 2, address: 0, port: 8080, health: {{http: /, interval: 0.2}}, volumes: {{data: /data}}}}
  store: {{{common}, instances: 2, volumes: {{data: /data}}}}
"""
COMMON = (
    "image: '{image}', pull: never, drain: 0.05, grace: 0.5,"
    " command: [sh, -c, 'mkdir -p /tmp/w && touch /tmp/w/index.html && exec httpd -f -p 8080 -h /tmp/w', '{word}']"
)


def definition(word: str) -> str:
    return DEFINITION.format(common=COMMON.format(image=IMAGE, word=word))


class Killed:
    """A server that is killed some time after each request, and started again."""

    def __init__(self, data: Path, podman: PodmanService, chance: Random) -> None:
        self._data, self._podman, self._chance = data, podman, chance
        self._environ = {
            "STATEWARD_SYSTEMS_CONTAINER_ENGINE": podman.address,
            "STATEWARD_SYSTEMS_CONTAINER_NAMESPACES": "default",
        }
        self.server = self._new_server()

    def _new_server(self) -> Served:
        return Served(self._data, "--only", "systems", environ=self._environ)

    def carry_out(self, method: str, url: str, body: Any = None, kills: int = 0) -> None:
        """Send a request, kill the server while it works at it, several times, and wait for the end of the request."""
        with self.server.client() as client:
            answer = client.request(method, url, json=body)
        assert answer.status_code == 202, answer.text
        for _ in range(kills):
            time.sleep(self._chance.uniform(0.05, 2.5))
            self.server.stop(signal.SIGKILL)
            self.server = self._new_server()
        with self.server.client() as client:
            operation = answer.json()["operation"]
            found = wait_until(client, f"/api/v1/ns/default/operations/{operation}", has_ended)
            assert found["status"] == "succeeded", found["error"]
            self.check_settled(client)

    def check_settled(self, client: httpx.Client) -> None:
        """Wait until the records say that all is well, and compare the engine with them."""
        found = client.get(SYSTEM, params={"instances": "true"})
        if found.status_code == 404:
            assert (self.containers(), self.names("network"), self.names("volume")) == (Counter(), [], [])
            return
        system = wait_until(client, f"{SYSTEM}?instances=true", lambda system: system["state"] == "stable")
        wanted = Counter(
            (service["path"], instance["revision"])
            for service in system["services"]
            for instance in service["instances"]
        )
        assert sum(wanted.values()) == (4 if system["services"] else 0)
        assert all(instance["ready"] for service in system["services"] for instance in service["instances"])
        end = time.monotonic() + PATIENT_S
        while self.containers() != wanted:  # what a killed server asked for may come late, and is removed
            assert time.monotonic() < end, (self.containers(), wanted)
            time.sleep(0.1)
        some = 1 if system["services"] else 0
        assert (len(self.names("network")), len(self.names("volume"))) == (some, some)

    def containers(self) -> Counter[tuple[str, str]]:
        """Return the running containers by service and revision; others count as wrong."""
        found = msgspec.json.decode(self._podman.run("ps", "--all", "--format", "json"))
        return Counter(
            (one["Labels"].get(f"{LABEL}service"), one["Labels"].get(f"{LABEL}revision"))
            if one["State"] == "running"
            else (one["State"], one["Names"][0])
            for one in found
        )

    def names(self, kind: str) -> list[str]:
        """Return the networks or volumes of the engine."""
        return [one for one in self._podman.run(kind, "ls", "--quiet").split() if one not in ("podman", "bridge")]


def has_ended(operation: Any) -> bool:
    return operation["status"] not in ("waiting", "running")


def wait_until(client: httpx.Client, url: str, fits: Any) -> Any:
    """Wait until a record satisfies a condition."""
    end = time.monotonic() + PATIENT_S
    while not fits(found := client.get(url).json()):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("kills", in_long_form([1, 4], short=[1]))
def test_a_killed_server_leaves_the_engine_as_the_records_say(
    podman: PodmanService, tmp_path: Path, kills: int
) -> None:
    killed = Killed(tmp_path / "data", podman, Random(kills))
    try:
        killed.carry_out("POST", "/api/v1/systems/default", {"name": "shop", "backend": "container"})
        for word in ("first", "second"):
            killed.carry_out("POST", f"{SYSTEM}/deploys", {"definition": definition(word)}, kills)
        killed.carry_out("DELETE", SYSTEM, kills=kills)
    finally:
        killed.server.stop(signal.SIGKILL)
