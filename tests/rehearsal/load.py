"""Callers, one for each cloudlet: each sends one request after the other, and repeats it until it has an answer."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import Any
from uuid import uuid4

import httpx
from msgspec import Struct, field

NS = "lab"
BASE = f"/api/v1/edge/ns/{NS}"
APP = "web"
ENDED = ("succeeded", "failed", "cancelled")
ANSWER_TIMEOUT_S = 40.0
"""How many seconds a caller waits for an answer: servers try for 30 seconds by themselves."""


Step = tuple[str, str, dict[str, Any] | None]
"""A request: method, path and body."""


class Pulse(Struct):
    """When something was accepted, and when something was seen to have ended."""

    accepted: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    refused: int = 0
    unanswered: int = 0  # calls that had to be made again

    def pauses(self, since: float, until: float) -> tuple[float, float]:
        """Return how long nothing was accepted, and how long nothing ended, at the longest, since a fault."""
        return longest(self.accepted, since, until), longest(self.ended, since, until)


def longest(times: Sequence[float], since: float, until: float) -> float:
    """Return the longest pause that has some of a span of time in it."""
    around = [since, *(one for one in times if since <= one <= until), until]
    return max(later - earlier for earlier, later in pairwise(around))


class Callers:
    """All callers."""

    def __init__(self, servers: Sequence[str], token: str, cloudlets: Sequence[str], pause: float) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        limits = httpx.Limits(max_connections=None)
        self._clients = [
            httpx.AsyncClient(base_url=one, headers=headers, timeout=ANSWER_TIMEOUT_S, trust_env=False, limits=limits)
            for one in servers
        ]
        self._cloudlets, self._pause, self._chance = cloudlets, pause, Random(2)
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.pulse = Pulse()
        self.accepted: dict[str, str] = {}  # what was asked, by operation
        self.statuses: dict[str, str] = {}  # how operations ended

    async def create_records(self) -> str:
        """Create the app and the cloudlets; returns a token for agents."""
        body = {"name": "agents", "role": "agent", "namespaces": [f"{NS}:*"]}
        token: str = (await self.ask("POST", "/api/v1/tokens", body)).json()["token"]
        await self.ask("PUT", f"{BASE}/apps/{APP}", {"command": "sleep 3600"})
        await asyncio.gather(*(self.ask("POST", f"{BASE}/cloudlets", {"name": one}) for one in self._cloudlets))
        return token

    async def until_ready(self) -> None:
        """Wait until every cloudlet has its agent."""
        while True:
            found = (await self.ask("GET", f"{BASE}/cloudlets")).json()
            if [one["state"] for one in found].count("Ready") == len(self._cloudlets):
                return
            await asyncio.sleep(0.3)

    def start(self) -> None:
        """Start all callers."""
        self._tasks = [asyncio.create_task(self._live(n, name)) for n, name in enumerate(self._cloudlets)]

    async def stop(self, within: float) -> None:
        """Stop, and wait for the ends of the last operations; the checks report those that have not ended."""
        self._stop.set()
        await asyncio.wait(self._tasks, timeout=within)

    async def close(self) -> None:
        """Stop at once."""
        self._stop.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.aclose()

    async def _live(self, number: int, cloudlet: str) -> None:
        """Create, change and delete a cluster, or an app with its own cluster, again and again."""
        clusters = f"{BASE}/cloudlets/{cloudlet}/clusterinsts"
        apps = f"{clusters}/autocluster{number}/appinsts"
        cluster: list[Step] = [
            ("POST", clusters, {"name": "c"}),
            ("PATCH", f"{clusters}/c", {"nodes": 2}),
            ("DELETE", f"{clusters}/c", None),
        ]
        app: list[Step] = [("POST", apps, {"app": APP}), ("DELETE", f"{apps}/{APP}", None)]
        while not self._stop.is_set():
            for step in app if number % 4 == 0 else cluster:
                await self._once(*step)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._chance.uniform(0.5, 1.5) * self._pause):
                        await self._stop.wait()

    async def _once(self, method: str, path: str, body: dict[str, Any] | None) -> None:
        answer = await self.ask(method, path, body)
        if answer.status_code != httpx.codes.ACCEPTED:
            self.pulse.refused += 1
            return
        operation = answer.json()["operation"]["id"]
        self.pulse.accepted.append(time.time())
        self.accepted[operation] = f"{method} {path}"
        await self._until_ended(operation)

    async def _until_ended(self, operation: str) -> None:
        while True:
            await asyncio.sleep(0.5)
            found = await self.ask("GET", f"/api/v1/ns/{NS}/operations/{operation}")
            if found.status_code != httpx.codes.OK:
                self.statuses[operation] = f"answered with {found.status_code}"
                return
            if found.json()["status"] in ENDED:
                self.statuses[operation] = found.json()["status"]
                self.pulse.ended.append(time.time())
                return

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        """Ask one server and then another, with one idempotency key, until there is an answer that is one."""
        key, turn = {"Idempotency-Key": uuid4().hex}, self._chance.randrange(len(self._clients))
        while True:
            with suppress(httpx.HTTPError):
                answer = await self._clients[turn % len(self._clients)].request(method, path, json=body, headers=key)
                if answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                    return answer
            self.pulse.unanswered += 1
            turn += 1
            await asyncio.sleep(0.5)
