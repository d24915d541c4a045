"""A server for tests: the real application on a real engine, without a network; each caller has a role."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
from litestar import Litestar

from stateward.access import Role, Tokens
from stateward.access.quotas import QuotaGuard, quota_kind
from stateward.access.sessions import session_kind
from stateward.access.tokens import token_kind
from stateward.config import Config
from stateward.domains.ovc.lifecycle import ACCOUNT, VM
from stateward.engine import Engine, Handler, Job, Kind
from stateward.lifecycle import Lifecycle
from stateward.server.app import BASE, create_app
from stateward.server.live import live_routes
from stateward.server.live.feeds import LiveFeeds
from stateward.server.telemetry import prometheus_metrics
from stateward.store import open_store
from stateward.store.port import Store
from tests.integration.engine.pump_kinds import Plant

NS = "shop"
OTHER = "bank"
Answer = httpx.Response


class Clock:
    """A clock that goes only when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class ServerHarness:
    """An application with its engine, its plant and its callers."""

    def __init__(self, engine: Engine, app: Litestar, plant: Plant, clock: Clock, texts: dict[str, str]) -> None:
        self.engine, self.app, self.plant, self.clock, self.texts = engine, app, plant, clock, texts
        self.tokens = Tokens(engine)
        self.callers: dict[str, httpx.AsyncClient] = {}

    def caller(self, who: str) -> httpx.AsyncClient:
        """Return a client with somebody's token; `nobody` has none."""
        if who not in self.callers:
            headers = {} if who == "nobody" else {"Authorization": f"Bearer {self.texts[who]}"}
            self.callers[who] = self.client(headers)
        return self.callers[who]

    def client(self, headers: dict[str, str]) -> httpx.AsyncClient:
        """Return a client that speaks to the application directly."""
        transport = httpx.ASGITransport(self.app)  # type: ignore[arg-type]
        return httpx.AsyncClient(transport=transport, base_url=f"http://test{BASE}", headers=headers)

    async def get(self, path: str, who: str = "admin", **how: Any) -> Answer:
        return await self.caller(who).get(path, **how)

    async def post(self, path: str, body: Any = None, who: str = "admin", **how: Any) -> Answer:
        return await self.caller(who).post(path, **({} if body is None else {"json": body}), **how)

    async def put(self, path: str, body: Any, who: str = "admin", **how: Any) -> Answer:
        return await self.caller(who).put(path, json=body, **how)

    async def built(self, name: str = "p1", ns: str = NS, **more: Any) -> None:
        """Build a pump and wait until it is there."""
        body = {"id": name, "kind": "test.pump", "action": "build", **more}
        answer = await self.post(f"/ns/{ns}/objects", body)
        assert answer.status_code == 202, answer.text
        await self.ended(answer, ns)

    async def ended(self, answer: Answer, ns: str = NS) -> None:
        """Wait for the end of the operation that an answer tells of."""
        await self.engine.wait_record(ns, answer.json()["operation"]["id"], 120)

    async def everything(self) -> dict[str, Any]:
        """Return all that the store holds of objects and lines, to see whether anything has changed."""
        answers = [await self.get(f"/ns/{ns}/objects?limit=1000") for ns in (NS, OTHER)]
        journal = await self.get("/journal?limit=1000")
        limits = [await self.get(path) for path in ("/lanes", "/tokens", "/quotas")]
        return {str(one.url): one.json() for one in (*answers, journal, *limits)}


def simple(lifecycle: Lifecycle) -> Kind:
    """Return a kind whose work is done at once."""

    async def work(_: Job) -> dict[str, bool]:
        return {"done": True}

    return Kind(lifecycle, {action: Handler(work) for action in lifecycle.actions})


async def keys(tokens: Tokens) -> dict[str, str]:
    """Give everybody a token: for `shop`, or elsewhere, or everywhere."""
    holders = {
        "viewer": ("vic", Role.VIEWER, NS),
        "operator": ("olga", Role.OPERATOR, NS),
        "admin": ("ada", Role.ADMIN, "*"),
        "agent": ("007", Role.AGENT, f"{NS}:*"),
        "local admin": ("liz", Role.ADMIN, NS),
        "outsider": ("sam", Role.OPERATOR, OTHER),
        "reader": ("rita", Role.VIEWER, "*"),
    }
    return {who: (await tokens.issue(name, role, [ns]))[0] for who, (name, role, ns) in holders.items()}


@asynccontextmanager
async def open_server(
    store: Store | None = None,
    config: Config | None = None,
    *,
    works: bool = True,
    fast_path: bool = True,
    also: Sequence[Kind] = (),
    without: Collection[str] = (),
) -> AsyncIterator[ServerHarness]:
    """Open a harness; everybody in it has a token for `shop`, the administrator for everything.

    The server does not know the kinds that it is opened `without`.
    """
    plant, clock = Plant(), Clock()
    every = [*also, plant.pump(), plant.station(), simple(VM), simple(ACCOUNT)]
    every += [token_kind(), session_kind(), quota_kind()]
    kinds = [kind for kind in every if kind.name not in without]
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(
            Engine(store or open_store(":memory:"), kinds, works=works, admission=QuotaGuard())
        )
        tokens = Tokens(engine)
        texts = await keys(tokens)
        app = create_app(
            engine,
            tokens,
            config or Config(rate=1_000_000, wrong_tokens=1_000_000),
            routes=prometheus_metrics.ROUTES,
            api_routes=live_routes.ROUTES,
            clock=clock,
            fast_path=fast_path,
        )
        live_feeds = await stack.enter_async_context(LiveFeeds(engine))
        app.state.live_feeds, app.state.metrics = live_feeds, live_feeds.metrics
        harness = ServerHarness(engine, app, plant, clock, texts)
        yield harness
        plant.release()
        for client in harness.callers.values():
            await client.aclose()
