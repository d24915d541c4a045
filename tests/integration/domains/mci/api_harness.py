"""The harness of API tests: the application with the mci domain on fast simulated clouds, without a network."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
from litestar import Litestar

from stateward.access import Role, Tokens
from stateward.access.quotas import quota_kind
from stateward.access.tokens import token_kind
from stateward.config import Config
from stateward.domains.mci.api import routes
from stateward.domains.mci.runtime import MciRuntime
from stateward.domains.mci.settings import MciSettings
from stateward.drivers import ProviderRegion
from stateward.drivers.simulated import SimulatedCloud
from stateward.drivers.simulated.faults import CALM, FaultProfile
from stateward.engine import Engine
from stateward.plugin.runtime import ProcessContext
from stateward.server.app import create_app
from stateward.server.live.feeds import LiveFeeds
from stateward.store import open_store
from stateward.store.port import Store
from stateward.store.records import Key
from tests.waiting import until

NS = "default"
PATIENT = 60.0
HERE = ProviderRegion("aws", "ap-northeast-2")
NANO, MICRO = "aws+ap-northeast-2+t3.nano", "gcp+asia-northeast3+e2-micro"
UBUNTU = "ubuntu22.04"
AWS = "aws-ap-northeast-2"

DEAD = FaultProfile(latency=0.0, patience=0.01, dead=True)
"""Nothing gets through: what is begun does not end before the region is another one."""

Answer = httpx.Response


def group(name: str = "g1", size: object = 2, **how: Any) -> dict[str, Any]:
    """Return the body of a subgroup."""
    return {"name": name, "subGroupSize": size, "specId": NANO, "imageId": UBUNTU, **how}


def mci(name: str = "m1", *groups: dict[str, Any], **how: Any) -> dict[str, Any]:
    """Return the body of an MCI."""
    return {"name": name, "subGroups": list(groups or (group(),)), **how}


class ApiHarness:
    """The application, its callers, and the calls to the providers."""

    def __init__(
        self, engine: Engine, plugin: MciRuntime, app: Litestar, tokens: Tokens, texts: dict[str, str]
    ) -> None:
        self.engine, self.plugin, self.app, self.tokens, self.texts = engine, plugin, app, tokens, texts
        self.calls: list[tuple[str, str]] = []
        self.saved: dict[str, int] = {}
        self._clients: dict[str, httpx.AsyncClient] = {}

    def client(self, who: str = "admin") -> httpx.AsyncClient:
        """Return a client with somebody's token; `nobody` has none."""
        if who not in self._clients:
            headers = {} if who == "nobody" else {"Authorization": f"Bearer {self.texts[who]}"}
            transport = httpx.ASGITransport(self.app)  # type: ignore[arg-type]
            self._clients[who] = httpx.AsyncClient(
                transport=transport, base_url="http://test/tumblebug", headers=headers, timeout=PATIENT
            )
        return self._clients[who]

    async def get(self, path: str, who: str = "admin", **how: Any) -> Answer:
        return await self.client(who).get(path, **how)

    async def post(self, path: str, body: Any = None, who: str = "admin", **how: Any) -> Answer:
        return await self.client(who).post(path, **({} if body is None else {"json": body}), **how)

    async def put(self, path: str, body: Any, who: str = "admin") -> Answer:
        return await self.client(who).put(path, json=body)

    async def delete(self, path: str, who: str = "admin") -> Answer:
        return await self.client(who).delete(path)

    def basic(self, who: str = "admin") -> dict[str, str]:
        """Return the header by which the original's clients present a token."""
        return {"Authorization": f"Basic {b64encode(f'default:{self.texts[who]}'.encode()).decode()}"}

    async def created(self, body: dict[str, Any] | None = None, ns: str = NS) -> Any:
        """Make an MCI, and wait until that has ended."""
        answer = await self.post(f"/ns/{ns}/mciDynamic?wait=60", body or mci())
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def done(self, path: str) -> Any:
        """Do something, and wait until that has ended."""
        answer = await self.post(f"{path}&wait=60")
        assert answer.status_code == 200, answer.text
        assert answer.json()["operationStatus"] == "succeeded", answer.text
        return answer.json()

    async def status(self, name: str = "m1", more: str = "") -> Any:
        """Return the status of an MCI."""
        return (await self.get(f"/ns/{NS}/mci/{name}?option=status{more}")).json()["status"]

    async def until(self, status: str, name: str = "m1") -> None:
        """Wait until the status of an MCI begins in some way."""
        async with asyncio.timeout(PATIENT):
            while not (await self.status(name))["status"].startswith(status):
                await asyncio.sleep(0.02)

    async def held(self, name: str = "m1") -> None:
        """Wait until an MCI is held: it is prepared, and nobody works on it."""
        await self.until("Prepared", name)
        await until(
            lambda: self.engine.store.reader.queue_of(Key(NS, name)), lambda queue: not any(one.owner for one in queue)
        )

    def set_profile(self, profile: FaultProfile, place: ProviderRegion = HERE) -> None:
        """Let a region behave in another way."""
        self.plugin.cloud.set_profile(place, profile)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()


@asynccontextmanager
async def open_api(
    folder: Path,
    store: Store | None = None,
    *,
    fresh_for: float = 60.0,
    lease: float = 15.0,
    settings: MciSettings | None = None,
) -> AsyncIterator[ApiHarness]:
    """Open the application; everybody has a token for `default`, the administrator for everything."""
    calls: list[tuple[str, str]] = []
    saved: dict[str, int] = {}

    def save(provider: str, number: int) -> None:
        saved[provider] = saved.get(provider, 0) + number

    site = ProcessContext(
        folder,
        random=Random(1),
        on_provider_call=lambda provider, call: calls.append((provider, call)),
        on_calls_saved=save,
        settings={} if settings is None else {"mci": settings},
    )
    plugin = MciRuntime(site, cloud=SimulatedCloud(profile=CALM, chance=Random(1)), tick=0.01, every=3600.0)
    kinds = [*plugin.kinds, token_kind(), quota_kind()]
    engine = Engine(store or open_store(":memory:"), kinds, lease_s=lease)
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=True):
        tokens = Tokens(engine)
        texts = {
            "admin": (await tokens.issue("ada", Role.ADMIN, ["*"]))[0],
            "operator": (await tokens.issue("olga", Role.OPERATOR, [NS]))[0],
            "viewer": (await tokens.issue("vic", Role.VIEWER, [NS]))[0],
            "outsider": (await tokens.issue("sam", Role.OPERATOR, ["other"]))[0],
        }
        mounted = routes(plugin, save, fresh_for=fresh_for)
        app = create_app(engine, tokens, Config(rate=1_000_000), routes=mounted)
        harness = ApiHarness(engine, plugin, app, tokens, texts)
        harness.calls, harness.saved = calls, saved
        async with LiveFeeds(engine) as app.state.live_feeds:
            yield harness
            await harness.close()
