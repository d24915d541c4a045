"""A server that lives in virtual time, with its real application, worker and domains, and the clients that use it."""

import asyncio
import gc
import heapq
import re
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from msgspec.json import decode, encode

from stateward.agents import agent, simulation
from stateward.agents.inprocess import InProcessDialer
from stateward.agents.self_upgrade import NoUpgrade
from stateward.aio.supervise import background
from stateward.config import Config
from stateward.domains.edge.runtime import EdgeRuntime
from stateward.domains.edge.settings import EdgeSettings
from stateward.domains.leases import host_pool
from stateward.domains.mci.api.request_log import RequestLog
from stateward.domains.mci.runtime import MciRuntime
from stateward.domains.systems import controllers
from stateward.domains.systems.nodes import node_hub
from stateward.domains.systems.retention import ChangeRetention
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.settings import SystemsSettings
from stateward.drivers.simulated import SimulatedCloud
from stateward.engine import queries
from stateward.server import run
from stateward.server.app import create_app
from stateward.server.auth import authenticator
from stateward.server.data_dir import DataDir
from stateward.server.domain_loading import LoadedDomains
from stateward.server.live import journal_feed, operation_followers, stream_server
from stateward.server.run import ServerApplication
from stateward.server.telemetry import journal_classifier
from stateward.server.telemetry.traces import NoTraces
from stateward.store.sqlite import SqliteStore
from stateward.testing.engines import START_TIME, rare_polls
from stateward.testing.virtual_loop import VirtualLoop

DAY, HOUR = 86_400.0, 3_600.0
NS = "shop"
SHOP = """\
services:
  web: {{command: [serve, "{0}"], instances: {1}}}
  db: {{command: [db]}}
jobs:
  report: {{command: [report], schedule: "*/30 * * * *"}}
"""
RARELY = (
    (controllers, "RETRY_S", 60.0),
    (journal_feed, "POLL_MAX_S", DAY),
    (node_hub, "RESEND_S", DAY),
    (operation_followers, "POLL_MAX_S", DAY),
    (queries, "WATCH_POLL_MAX_S", DAY),
)
"""Polls that replace lost notifications: in one process none is lost, and each costs real time."""

FEW = 10
LIMITS = (
    (agent, "MAX_ENDED_MEMORIES"),
    (authenticator, "MAX_CACHED_TOKENS"),
    (host_pool, "MAX_EXPRESSIONS"),
    (journal_classifier, "MAX_REMEMBERED_OPERATIONS"),
    (journal_feed, "UNWATCHED_CACHE_ENTRIES"),
    (authenticator, "MAX_KEYS"),
    (simulation, "MAX_APPLIED"),
    (stream_server, "MAX_ENDED_RECORDS"),
    (ChangeRetention.prune, "__defaults__"),
    (RequestLog.__init__, "__defaults__"),
)
"""What keeps the memory of a process within limits, which are so low here that the first days reach them."""

Figures = dict[str, dict[str, int]]
"""What there is, by sort and by name."""


class YearLoop(VirtualLoop):
    """A virtual loop whose threads do their work while time stands still."""

    def run_in_executor(self, executor: object, func: Any, *args: object) -> Any:
        """Call a function, and return a future that has its result."""
        del executor
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def live(folder: Path, days: int, measured: set[int]) -> dict[int, Figures]:
    """Run a server for so many days under a steady load, and return the figures after some of them."""
    loop = YearLoop((days + 2) * DAY)
    try:
        with virtual_server(loop):
            return loop.run_until_complete(Year(folder, loop).live(days, measured))
    finally:
        loop.close()


@contextmanager
def virtual_server(loop: YearLoop) -> Iterator[None]:
    """Let a server's store, clocks and background tasks be those of a virtual loop."""

    def now() -> float:
        return START_TIME + loop.time()

    def open_store(config: Config) -> SqliteStore:
        return SqliteStore(config.store_url, inline=True, synchronous="OFF", clock=now)

    with pytest.MonkeyPatch.context() as patch, rare_polls():
        for module in [time, *(one for name, one in sys.modules.items() if name.startswith("stateward."))]:
            if hasattr(module, "monotonic"):
                patch.setattr(module, "monotonic", loop.time)
        patch.setattr(run, "store_of", open_store)
        patch.setattr(run, "create_app", partial(create_app, clock=loop.time))
        patch.setattr(run, "domains_of", partial(quiet_domains, run.domains_of, now))
        for holder, name, seconds in RARELY:
            patch.setattr(holder, name, seconds)
        for limited, name in LIMITS:
            patch.setattr(limited, name, (FEW,) if name == "__defaults__" else FEW)
        yield


def quiet_domains(load: Callable[..., LoadedDomains], now: Callable[[], float], *given: Any) -> LoadedDomains:
    """Load the domains, without backends of real processes, and with few ticks."""
    domains = load(*given)
    for runtime in domains.runtimes:
        if isinstance(runtime, SystemsRuntime):
            backends: Any = runtime.context.backends
            del backends["local"], backends["nodes"]
        elif isinstance(runtime, EdgeRuntime):
            runtime._lease_s = DAY
            runtime._times["retry_s"] = HOUR
        elif isinstance(runtime, MciRuntime):
            runtime._every = HOUR
            runtime._cloud = SimulatedCloud(clock=now, sleep=asyncio.sleep)
    return domains


class Year:
    """A server under a steady load."""

    def __init__(self, folder: Path, loop: YearLoop) -> None:
        self.folder, self.loop = folder, loop
        self.client: httpx.AsyncClient
        self.parts: ServerApplication
        self.number = 0

    async def live(self, days: int, measured: set[int]) -> dict[int, Figures]:
        """Live for so many days."""
        found = dict[int, bytes]()  # encoded, so that the figures of one day are no part of those of another
        async with self.opened():
            await self.prepare()
            for day in range(1, days + 1):
                await self.pass_day()
                await asyncio.sleep(day * DAY - self.loop.time())
                if day in measured:
                    found[day] = encode(await self.measure())
        return {day: decode(one, type=Figures) for day, one in found.items()}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open the server, with an administrator's client and the agent of a cloudlet."""
        edge = EdgeSettings(beat=HOUR, measures=HOUR, policies=HOUR)
        settings = {"edge": edge, "systems": SystemsSettings(node_lease=HOUR)}
        config = Config(str(self.folder), history=1, lease=DAY, only="systems,leases,edge,mci", domains=settings)
        async with run.open_application(config) as self.parts:
            assert await DataDir(config).ensure_admin_token(self.parts.tokens) is None
            token = (self.folder / "admin-token").read_text().strip()
            app: Any = run.with_telemetry(self.parts.app, NoTraces(), self.parts.live_feeds.metrics)
            headers = {"Authorization": f"Bearer {token}"}
            self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", headers=headers)
            async with self.client:
                (hub,) = [one.agent_hub for one in self.parts.domains.runtimes if isinstance(one, EdgeRuntime)]
                dialer = InProcessDialer(hub, NS, "attic")
                site = agent.Agent(simulation.SimulatedSite(), dialer, "1", NoUpgrade(), observe_interval_s=HOUR)
                async with background(site.run()):
                    yield

    async def prepare(self) -> None:
        """Make what lasts."""
        await self.call("POST", "/tumblebug/ns", {"name": NS})
        await self.call("POST", f"/api/v1/edge/ns/{NS}/cloudlets", {"name": "attic"})
        await self.call("POST", f"/ns/{NS}/blazar/v1/os-hosts", {"name": "h1", "vcpus": 4})
        await self.call("POST", f"/api/v1/systems/{NS}", {"name": "shop", "backend": "simulated"})

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Make a request that is accepted; returns the answer."""
        key = {"Idempotency-Key": f"key-{self.number}"} if method == "POST" and path.startswith("/api/") else {}
        self.number += 1
        answer = await self.client.request(method, path, json=body, headers={**key, **headers})
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer

    # --- the load ----------------------------------------------------------------------------------------------------

    async def pass_day(self) -> None:
        """Do something new every 18 minutes, or after an hour; the rest of the day is for what was begun."""
        turns = (self.deploy, self.lease, self.sign_in, self.use_connection, self.use_cluster, self.read, self.preview)
        for number in range(42):
            await turns[number % len(turns)](f"n{self.number}")
            await asyncio.sleep(0.3 * HOUR)

    def in_an_hour(self, form: str) -> str:
        """Return a time to come, as a text."""
        return time.strftime(form, time.gmtime(START_TIME + self.loop.time() + HOUR))

    async def rest(self, id_: str) -> None:
        """Wait until an object is gone, or nothing is under way on it."""
        while (answer := await self.client.get(f"/api/v1/ns/{NS}/objects/{id_}")).status_code == 200:
            if answer.json()["op"] is None and answer.json()["state_class"] != "transitional":
                return
            await asyncio.sleep(1.0)

    async def deploy(self, name: str) -> None:
        """Deploy a new version of the shop."""
        definition = SHOP.format(name, 1 + self.number % 3)
        await self.call("POST", f"/api/v1/systems/{NS}/shop/deploys", {"definition": definition})

    async def preview(self, name: str) -> None:
        """Make a system, deploy to it, and delete it."""
        await self.call("POST", f"/api/v1/systems/{NS}", {"name": name, "backend": "simulated"})
        await self.rest(name)
        await self.call("POST", f"/api/v1/systems/{NS}/{name}/deploys", {"definition": SHOP.format(name, 1)})
        await asyncio.sleep(60.0)
        await self.call("DELETE", f"/api/v1/systems/{NS}/{name}")

    async def lease(self, name: str) -> None:
        """Lease a host for an hour, by an expression that nobody has used before."""
        end, only = self.in_an_hour("%Y-%m-%d %H:%M"), f'["!=", "$hypervisor_hostname", "{name}"]'
        host = {"resource_type": "physical:host", "min": 1, "max": 1, "resource_properties": only}
        body = {"name": name, "start_date": "now", "end_date": end, "reservations": [host]}
        lease = (await self.call("POST", f"/ns/{NS}/blazar/v1/leases", body)).json()["lease"]["id"]
        await asyncio.sleep(HOUR)
        await self.call("DELETE", f"/ns/{NS}/blazar/v1/leases/{lease}")

    async def sign_in(self, name: str) -> None:
        """Issue two tokens, of which one expires; use the other for a session, and revoke it."""
        body = {"name": name, "role": "viewer", "namespaces": [NS]}
        await self.call("POST", "/api/v1/tokens", {**body, "expires": self.in_an_hour("%Y-%m-%dT%H:%M:%SZ")})
        issued = (await self.call("POST", "/api/v1/tokens", body)).json()
        own = {"Origin": "http://test", "X-Stateward-Request": "1"}
        for _ in range(2):  # the second sign-in ends the first session
            await self.call("POST", "/api/v1/session", {"token": issued["token"]}, **own)
        if self.number % 2:
            await self.call("DELETE", "/api/v1/session", **own)
        self.client.cookies.clear()
        await self.call("GET", "/api/v1/kinds", Authorization=f"Bearer {issued['token']}")
        await self.call("DELETE", f"/api/v1/tokens/{issued['info']['id']}")

    async def use_connection(self, name: str) -> None:
        """Add a connection with lanes of its own, use it for a machine, and remove both."""
        at = f"/tumblebug/ns/{NS}"
        body = {"name": name, "provider": "aws", "region": "us-east-1", "driver": "simulated"}
        spec = {"specId": "aws+us-east-1+t3.nano", "imageId": "ubuntu22.04"}
        group = {"name": "g1", "subGroupSize": 1, "connectionName": name, **spec}
        await self.call("POST", "/api/v1/mci/connections", body)
        await self.call("POST", f"{at}/mciDynamic", {"name": name, "subGroups": [group]})
        await self.rest(name)
        await self.call("DELETE", f"{at}/mci/{name}?option=terminate")
        await self.rest(name)
        await self.call("DELETE", f"{at}/sharedResources")
        await self.call("DELETE", f"/api/v1/mci/connections/{name}")

    async def use_cluster(self, name: str) -> None:
        """Let the agent of a cloudlet make a cluster, change it, and delete it."""
        at = f"/api/v1/edge/ns/{NS}/cloudlets/attic/clusterinsts"
        await self.call("POST", at, {"name": name, "nodes": 1})
        await self.rest(f"attic:{name}")
        await self.call("PATCH", f"{at}/{name}", {"nodes": 2})
        await self.rest(f"attic:{name}")
        await self.call("DELETE", f"{at}/{name}")

    async def read(self, name: str) -> None:
        """Read what an operator reads, and what does not exist."""
        for path in ("/metrics", "/api/v1/journal?limit=10", f"/api/v1/ns/{NS}/operations", "/api/v1/namespaces"):
            await self.call("GET", path)
        assert (await self.client.get(f"/api/v1/ns/{name}/objects/{name}")).status_code == 404
        assert (await self.client.get(f"/{name}", headers={"Authorization": f"Bearer {name}"})).status_code >= 400

    # --- the figures -------------------------------------------------------------------------------------------------

    async def measure(self) -> Figures:
        """Return what there is, at rest."""
        await self.call("POST", "/api/v1/prune", {"older": int(DAY)})
        store: Any = self.parts.engine.store
        connection: sqlite3.Connection = store.connection
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        text = (await self.call("GET", "/metrics")).text
        figures = {
            "rows": {one: connection.execute(f"SELECT count(*) FROM {one}").fetchone()[0] for one in tables},
            "bytes": {one.name: one.stat().st_size for one in self.folder.rglob("*") if one.is_file()},
            "time series": Counter(re.findall(r"^(\w+)", text, re.MULTILINE)),
        }
        drop_cancelled_timers(self.loop)
        gc.unfreeze()  # what was there before the tests: modules
        for cache in [one for one in gc.get_objects() if type(one) is CACHE]:
            if cache.cache_info().maxsize is not None:
                cache.cache_clear()
        gc.collect()
        figures["containers"] = lengths()  # first: it gives each object a dictionary of its own
        figures["memory"] = {"blocks": sys.getallocatedblocks()}
        figures["objects"] = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
        gc.freeze()
        return figures


def drop_cancelled_timers(loop: Any) -> None:
    """Let a loop forget its cancelled timers now; it keeps a hundred of them until half of its timers are cancelled."""
    loop._scheduled[:] = [timer for timer in loop._scheduled if not timer.cancelled()]
    heapq.heapify(loop._scheduled)
    loop._timer_cancelled_count = 0


CACHE = type(lru_cache(int))
SIZED = (dict, list, set, frozenset)


def lengths() -> Counter[str]:
    """Return the lengths of all containers that are attributes or global, and of what is in these."""
    found: Counter[str] = Counter()
    for one in gc.get_objects():
        cls = type(one)
        name = f"{one.__name__}" if cls is ModuleType else f"{cls.__module__}.{cls.__qualname__}"
        for attribute, value in fields(one, cls):
            if isinstance(value, SIZED) or type(value).__module__ == "collections":
                found[f"{name}.{attribute}"] += len(value)
                inner = value.values() if isinstance(value, dict) else value
                found[f"{name}.{attribute}[]"] += sum(len(item) for item in inner if type(item) in SIZED)
            elif type(value) is CACHE:
                found[f"{name}.{attribute}()"] += value.cache_info().currsize
    return found


def fields(one: object, cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object that it has itself."""
    own = getattr(one, "__dict__", None) if cls.__dictoffset__ else None
    if type(own) is dict:
        yield from own.items()
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            with suppress(AttributeError):
                yield slot, getattr(one, slot)
