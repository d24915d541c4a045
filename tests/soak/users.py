"""The users of a soak: one or more for each domain; each creates objects, changes them and deletes them.

They use HTTP, as clients do. A refusal is an answer; a call to a server that is away is repeated. An answer that no
server may give, whichever process was killed, is recorded as a fault.
"""

# real time: kills and pauses come at times that a seed draws; each outcome is judged, none is expected
import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import uuid4

import httpx

from tests.soak.soak_deployment import AGAIN, SoakDeployment

NS = "soak"
PATIENT = 120.0
PAUSE = 0.2
BUSY = 503
CLOUDLETS = ("e1", "e2")
SPECS = ("aws+ap-northeast-2+t3.micro", "gcp+us-central1+e2-small", "azure+westeurope+Standard_B2s")
IMAGE = "ubuntu22.04"
SYSTEM = """\
services:
  web: {{command: [serve, "{0}"], instances: {1}}}
  store: {{services: {{api: {{command: [api, "{0}"]}}}}}}
"""


class NotAtRest(Exception):
    """An object did not come to rest in time, or a call had no answer."""


class Calls:
    """The calls of all users, and a count of their answers."""

    def __init__(self, deployment: SoakDeployment) -> None:
        self.deployment = deployment
        self.answers: Counter[int] = Counter()
        self.faults: list[str] = []
        self._clients: dict[str, httpx.AsyncClient] = {}

    async def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Call until there is an answer; the same key makes sure that what was done is not done again."""
        headers = {"Idempotency-Key": uuid4().hex} if method == "POST" and path.startswith("/api/") else {}
        end = time.monotonic() + PATIENT
        while True:
            with suppress(*AGAIN):
                answer = await self._client().request(method, path, json=body, headers=headers)
                self.answers[answer.status_code] += 1
                if answer.status_code >= 500 and answer.status_code != BUSY:
                    self.faults.append(f"{method} {path} was answered {answer.status_code}: {answer.text[:500]}")
                if answer.status_code != BUSY:
                    return answer
            if time.monotonic() > end:
                raise NotAtRest(f"{method} {path} had no answer in {PATIENT:g} s")
            await asyncio.sleep(PAUSE)

    def _client(self) -> httpx.AsyncClient:
        url, token = self.deployment.address()
        if url not in self._clients:
            headers = {"Authorization": f"Bearer {token}"}
            self._clients[url] = httpx.AsyncClient(base_url=url, headers=headers, timeout=30, trust_env=False)
        return self._clients[url]

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.aclose()

    async def rest(self, id_: str) -> str:
        """Wait until nothing is under way on an object; returns its state, or nothing if it is gone."""
        end = time.monotonic() + PATIENT
        while time.monotonic() < end:
            answer = await self.call("GET", f"/api/v1/ns/{NS}/objects/{id_}")
            if answer.status_code == 404:
                return ""
            found = answer.json()
            if found["op"] is None and found["state_class"] != "transitional":
                return str(found["state"])
            await asyncio.sleep(PAUSE)
        raise NotAtRest(f"{id_} is not at rest after {PATIENT:g} s: {found['state']}; {await self._history(id_)}")

    async def _history(self, id_: str) -> str:
        """Return what the journal has of an object, from its last lines backwards."""
        answer = await self.call("GET", f"/api/v1/ns/{NS}/objects/{id_}/history?limit=1000")
        lines = [f"{one['at']} {one['actor']} {one['event']} ({one['reason']})" for one in answer.json()["items"][-8:]]
        return "; ".join(reversed(lines))


class User:
    """A user that takes turns until the end of the soak, and then deletes everything."""

    def __init__(self, calls: Calls, chance: Random, name: str) -> None:
        self.calls, self.chance, self.name = calls, chance, name
        self.call, self.rest = calls.call, calls.rest
        self.turns = 0

    async def prepare(self) -> None:
        """Create what all turns need."""

    async def turn(self) -> None:
        """Create something, change it, and delete it."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Delete what was prepared."""

    async def run(self, goes_on: Callable[[], bool]) -> None:
        """Take turns."""
        try:
            await self.prepare()
            while not self.turns or goes_on():
                await self.turn()
                self.turns += 1
            await self.leave()
        except NotAtRest as error:
            self.calls.faults.append(f"{self.name}: {error}")

    async def made(self, path: str, body: Any) -> str:
        """Make an object, and see it at rest; returns its id."""
        answer = await self.call("POST", path, body)
        id_ = str(answer.json()["object"]["id"]) if answer.status_code < 300 else ""
        if id_:
            await self.rest(id_)
        return id_


class MciUser(User):
    """Fleets on simulated clouds."""

    async def prepare(self) -> None:
        await self.call("POST", "/tumblebug/ns", {"name": NS})

    async def turn(self) -> None:
        specs = self.chance.sample(SPECS, 2)
        groups = [
            {"name": f"g{n}", "subGroupSize": 2, "specId": spec, "imageId": IMAGE} for n, spec in enumerate(specs)
        ]
        at = f"/tumblebug/ns/{NS}"
        await self.call("POST", f"{at}/mciDynamic", {"name": self.name, "subGroups": groups})
        await self.rest(self.name)
        for action in self.chance.sample(["suspend", "resume", "reboot", "refine"], 2):
            await self.call("GET", f"{at}/control/mci/{self.name}?action={action}")
            await self.rest(self.name)
            await self.call("GET", f"{at}/mci/{self.name}?option=status")
        await self.call("DELETE", f"{at}/mci/{self.name}?option=force")
        await self.rest(self.name)


class EdgeUser(User):
    """Clusters on a cloudlet whose agent is simulated."""

    async def prepare(self) -> None:
        await self.call("POST", f"/api/v1/edge/ns/{NS}/cloudlets", {"name": self.name})
        await self.rest(self.name)

    async def turn(self) -> None:
        at = f"/api/v1/edge/ns/{NS}/cloudlets/{self.name}/clusterinsts"
        await self.call("POST", at, {"name": "k8s", "nodes": 1})
        await self.rest(f"{self.name}:k8s")
        await self.call("PATCH", f"{at}/k8s", {"nodes": self.chance.randint(2, 5)})
        await self.rest(f"{self.name}:k8s")
        await self.call("DELETE", f"{at}/k8s")
        await self.rest(f"{self.name}:k8s")

    async def leave(self) -> None:
        await self.call("DELETE", f"/api/v1/edge/ns/{NS}/cloudlets/{self.name}")
        await self.rest(self.name)


class OvcUser(User):
    """Machines on simulated nodes."""

    account = box = image = node = ""
    at = f"/api/v1/ovc/{NS}"

    async def prepare(self) -> None:
        self.node = await self.made(f"{self.at}/nodes", {"name": f"n {self.name}", "driver": "simulated"})
        self.account = await self.made(f"{self.at}/accounts", {"name": self.name})
        own = {"account": self.account}
        self.box = await self.made(f"{self.at}/cloudspaces", {"name": f"c {self.name}", **own})
        self.image = await self.made(f"{self.at}/images", {"name": f"i {self.name}", **own})

    async def turn(self) -> None:
        name = f"vm {self.name} {self.turns}"
        vm = await self.made(f"{self.at}/machines", {"name": name, "cloudspace": self.box, "image": self.image})
        if not vm:
            return
        for action in self.chance.sample(["pause", "resume", "stop", "start", "reboot"], 3):
            await self.call("POST", f"{self.at}/machines/{vm}/{action}")
            await self.rest(vm)
        await self.call("DELETE", f"{self.at}/machines/{vm}?permanently=true")
        await self.rest(vm)

    async def leave(self) -> None:
        await self.call("DELETE", f"{self.at}/accounts/{self.account}?permanently=true")
        await self.rest(self.account)


class LeaseUser(User):
    """Leases of hosts, that start at once."""

    at = f"/ns/{NS}/blazar/v1"

    async def prepare(self) -> None:
        await self.call("POST", f"{self.at}/os-hosts", {"name": f"h-{self.name}", "vcpus": 4})

    async def turn(self) -> None:
        await self._delete_unanswered()
        reservation = {"resource_type": "physical:host", "min": 1, "max": 1}
        until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%d %H:%M")
        lease = {
            "name": f"{self.name} {self.turns}",
            "start_date": "now",
            "end_date": until,
            "reservations": [reservation],
        }
        answer = await self.call("POST", f"{self.at}/leases", lease)
        if answer.status_code < 300:
            id_ = answer.json()["lease"]["id"]
            await self.rest(id_)
            await self.call("DELETE", f"{self.at}/leases/{id_}")
            await self.rest(id_)
        await asyncio.sleep(PAUSE)

    async def _delete_unanswered(self) -> None:
        """Delete leases whose creation had no answer: Blazar's clients have no idempotency key."""
        for lease in (await self.call("GET", f"{self.at}/leases")).json()["leases"]:
            if str(lease["name"]).startswith(f"{self.name} "):
                await self.call("DELETE", f"{self.at}/leases/{lease['id']}")

    async def leave(self) -> None:
        await self._delete_unanswered()
        await self.call("DELETE", f"{self.at}/os-hosts/h-{self.name}")


class SystemsUser(User):
    """Deploys of a system on simulated instances."""

    async def turn(self) -> None:
        at = f"/api/v1/systems/{NS}"
        await self.call("POST", at, {"name": self.name, "backend": "simulated"})
        await self.rest(self.name)
        for round_ in range(2):
            text = SYSTEM.format(round_, self.chance.randint(1, 3))
            await self.call("POST", f"{at}/{self.name}/deploys", {"definition": text})
            await self.wait_for_changes()
        await self.call("POST", f"{at}/{self.name}/teardowns", {})
        await self.wait_for_changes()
        await self.call("DELETE", f"{at}/{self.name}")
        await self.rest(self.name)

    async def wait_for_changes(self) -> None:
        """Wait until no change of the system is under way."""
        end = time.monotonic() + PATIENT
        while time.monotonic() < end:
            answer = await self.call("GET", f"/api/v1/ns/{NS}/objects?parent={self.name}&limit=1000")
            if not any(one["op"] for one in answer.json()["items"]) and await self.rest(self.name) is not None:
                return
            await asyncio.sleep(PAUSE)
        raise NotAtRest(f"the system {self.name} is not quiet after {PATIENT:g} s")


def users(calls: Calls, chance: Random) -> list[User]:
    """Return all users."""
    sorts: list[tuple[type[User], tuple[str, ...]]] = [
        (MciUser, ("m1", "m2")),
        (EdgeUser, CLOUDLETS),
        (OvcUser, ("o1", "o2")),
        (LeaseUser, ("l1", "l2")),
        (SystemsUser, ("s1",)),
    ]
    return [sort(calls, Random(chance.random()), name) for sort, names in sorts for name in names]
