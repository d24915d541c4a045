"""Every route for every role, by one table of rights over all routes of the application."""

from collections.abc import Iterator
from typing import Any, Literal

import pytest
from litestar import Litestar, WebSocket, get, websocket
from litestar.exceptions import ImproperlyConfiguredException
from litestar.routes import HTTPRoute

from stateward.access import Right, Role
from stateward.access.tokens import SYSTEM
from stateward.config import Config
from stateward.server.app import create_app
from stateward.server.auth.guards import requires
from tests.integration.server.server_harness import NS, ServerHarness

Rule = Literal["everybody", "our page", "read", "read in shop", "read everywhere", "act in shop", "govern"]

RULES: dict[str, Rule] = {
    "GET /healthz": "everybody",
    "GET /readyz": "everybody",
    "GET /openapi.json": "everybody",
    "GET /docs": "everybody",
    "GET /docs/guide": "everybody",
    "GET /docs/openapi.json": "everybody",
    "GET /docs/page.css": "everybody",
    "GET /docs/page.js": "everybody",
    "GET /docs/{path}": "everybody",
    "GET /metrics": "read",
    "GET /api/v1/kinds": "read",
    "GET /api/v1/kinds/{kind}": "read",
    "GET /api/v1/kinds/{kind}/diagram": "read",
    "GET /api/v1/plugins": "read",
    "GET /api/v1/plugins/{name}/docs": "read",
    "GET /api/v1/namespaces": "read",
    "GET /api/v1/objects": "read",
    "GET /api/v1/search": "read",
    "GET /api/v1/journal": "read",
    "GET /api/v1/journal/counts": "read",
    "GET /api/v1/stuck": "read",
    "GET /api/v1/lanes": "read everywhere",
    "GET /api/v1/ns/{ns}/counts": "read in shop",
    "GET /api/v1/ns/{ns}/objects": "read in shop",
    "GET /api/v1/ns/{ns}/objects/{id}": "read in shop",
    "GET /api/v1/ns/{ns}/objects/{id}/allowed": "read in shop",
    "GET /api/v1/ns/{ns}/objects/{id}/at": "read in shop",
    "GET /api/v1/ns/{ns}/objects/{id}/history": "read in shop",
    "GET /api/v1/ns/{ns}/objects/{id}/changes": "read in shop",
    "GET /api/v1/ns/{ns}/objects/{id}/queue": "read in shop",
    "GET /api/v1/ns/{ns}/objects/{id}/why": "read in shop",
    "GET /api/v1/operations": "read",
    "GET /api/v1/ns/{ns}/operations": "read in shop",
    "GET /api/v1/ns/{ns}/operations/{op}": "read in shop",
    "GET /api/v1/ns/{ns}/operations/{op}/children": "read in shop",
    "GET /api/v1/ns/{ns}/operations/{op}/timeline": "read in shop",
    "GET /api/v1/ns/{ns}/operations/{op}/events": "read in shop",
    "GET /api/v1/ns/{ns}/locks/{tree}": "read in shop",
    "GET /api/v1/ns/{ns}/timers": "read in shop",
    "POST /api/v1/ns/{ns}/objects": "act in shop",
    "PUT /api/v1/ns/{ns}/objects/{id}/labels": "act in shop",
    "GET /api/v1/ns/{ns}/objects/{id}/protection": "read in shop",
    "PUT /api/v1/ns/{ns}/objects/{id}/protection": "act in shop",
    "GET /api/v1/ns/{ns}/protection": "read in shop",
    "PUT /api/v1/ns/{ns}/protection": "govern",
    "POST /api/v1/ns/{ns}/objects/{id}/actions/{action}": "act in shop",
    "POST /api/v1/ns/{ns}/objects/{id}/actions/{action}/preview": "act in shop",
    "POST /api/v1/ns/{ns}/actions/{action}": "act in shop",
    "POST /api/v1/ns/{ns}/actions/{action}/preview": "act in shop",
    "POST /api/v1/ns/{ns}/plan": "act in shop",
    "POST /api/v1/ns/{ns}/operations/{op}/cancel": "act in shop",
    "POST /api/v1/ns/{ns}/operations/{op}/signals/{name}": "act in shop",
    "PUT /api/v1/lanes/{lane}": "govern",
    "PUT /api/v1/groups/{grp}": "govern",
    "GET /api/v1/workers": "govern",
    "POST /api/v1/heal": "govern",
    "POST /api/v1/prune": "govern",
    "POST /api/v1/ns/{ns}/objects/{id}/forget": "govern",
    "GET /api/v1/tokens": "govern",
    "POST /api/v1/tokens": "govern",
    "DELETE /api/v1/tokens/{id}": "govern",
    "POST /api/v1/session": "everybody",  # with a token in the body, from our page: see test_sessions.py
    "DELETE /api/v1/session": "our page",
    "GET /api/v1/quotas": "govern",
    "PUT /api/v1/quotas/{ns}": "govern",
}

MAY: dict[str, set[Rule]] = {
    # who            what they may, beside what everybody may
    "viewer":      {"read", "read in shop"},
    "operator":    {"read", "read in shop", "act in shop"},
    "local admin": {"read", "read in shop", "act in shop"},
    "admin":       {"read", "read in shop", "act in shop", "read everywhere", "govern"},
    "reader":      {"read", "read in shop", "read everywhere"},
    "outsider":    {"read"},
    "agent":       set(),
}  # fmt: skip

PLACES = {"ns": NS, "id": "p1", "kind": "test.pump", "op": "1", "action": "pump", "tree": "t", "grp": "g", "lane": "l"}
PLACES |= {"path": "x", "name": "go"}
SPEAKING = (
    "/api/v1/stream",
    "/api/v1/edge/agents/{space:str}/{cloudlet:str}",
    "/api/v1/systems/-/nodes/{space:str}/{node:str}",
)
"""Routes that are not HTTP: they look at the token themselves, and their own tests see to that."""

UNKNOWN = ("nobody", "somebody", "revoked", "expired")


def routes(app: Litestar) -> Iterator[tuple[str, str]]:
    """Return every method and path of an application."""
    for route in app.routes:
        if not isinstance(route, HTTPRoute):
            assert route.path in SPEAKING
            continue
        for handler in route.route_handlers:
            yield from ((method, route.path_format) for method in handler.http_methods if method != "OPTIONS")


@pytest.fixture
async def guests(harness: ServerHarness) -> ServerHarness:
    """Give a harness tokens that open nothing (any more)."""
    harness.texts["somebody"] = "sw_0123456789ab_this-was-never-issued"
    harness.texts["revoked"], info = await harness.tokens.issue("rob", Role.ADMIN, ["*"])
    await harness.tokens.revoke(info.id)
    now = await harness.engine.store.reader.time()
    harness.texts["expired"], info = await harness.tokens.issue("eve", Role.ADMIN, ["*"], now + 3600)
    await harness.engine.act(SYSTEM, f"token-{info.id}", "expire", actor="clock")
    return harness


def test_the_table_has_every_route_and_no_other(harness: ServerHarness) -> None:
    assert sorted(RULES) == sorted(f"{method} {path}" for method, path in routes(harness.app))


@pytest.mark.parametrize("who", [*MAY, *UNKNOWN])
async def test_a_caller_passes_where_its_token_opens_and_nowhere_else(guests: ServerHarness, who: str) -> None:
    await guests.built()
    found, expected = {}, {}
    for method, path in routes(guests.app):
        filled = path.format(**PLACES)
        url = f"http://test{filled.replace('/tokens/p1', '/tokens/none')}"
        answer = await guests.caller(who).request(method, url, json={} if method in ("POST", "PUT") else None)
        rule = RULES[f"{method} {path}"]
        found[f"{method} {path}"] = answer.status_code if answer.status_code in (401, 403) else 0
        passes = rule == "everybody" or rule in MAY.get(who, set())
        expected[f"{method} {path}"] = 0 if passes else 401 if who in UNKNOWN and rule != "our page" else 403
    assert found == expected


@pytest.mark.parametrize("who", ["outsider", "viewer", "agent", "nobody"])
async def test_whoever_is_refused_has_changed_nothing(guests: ServerHarness, who: str) -> None:
    await guests.built()
    before = await guests.everything()
    bodies = {
        f"/ns/{NS}/objects": {"id": "new", "kind": "ovc.vm"},
        f"/ns/{NS}/objects/p1/actions/pump": {},
        f"/ns/{NS}/actions/pump": {"selector": {"q": "p"}},
        "/tokens": {"name": "me", "role": "admin", "namespaces": ["*"]},
    }
    for path, body in bodies.items():
        assert (await guests.post(path, body, who)).status_code in (401, 403)
    assert (await guests.put("/lanes/l", {"grp": "g", "capacity": 1}, who)).status_code in (401, 403)
    assert await guests.everything() == before


async def test_a_route_that_declares_no_right_is_not_served(harness: ServerHarness) -> None:
    @get("/leak")
    async def leak() -> str:
        return "everything"

    with pytest.raises(ImproperlyConfiguredException, match=r"/leak: .* does not declare the right"):
        create_app(harness.engine, harness.tokens, Config(), routes=[leak])


async def test_a_route_that_is_added_later_without_a_right_is_closed(harness: ServerHarness) -> None:
    @get("/leak")
    async def leak() -> str:
        return "everything"

    harness.app.register(leak)
    answer = await harness.get("http://test/leak")
    assert (answer.status_code, "everything" in answer.text) == (403, False)


@pytest.mark.parametrize(("who", "code"), [("nobody", 4401), ("outsider", 4403), ("viewer", 1000)])
async def test_a_socket_that_needs_a_right_is_closed_to_others(harness: ServerHarness, who: str, code: int) -> None:
    @websocket("/ns/{ns:str}/talk", guards=[requires(Right.READ)])
    async def talk(socket: WebSocket[Any, Any, Any]) -> None:
        await socket.accept()
        await socket.close()

    app = create_app(harness.engine, harness.tokens, Config(), routes=[talk])
    assert await closing_code(app, f"/ns/{NS}/talk", harness.texts.get(who, "")) == code


async def closing_code(app: Litestar, path: str, token: str) -> int:
    """Open a socket without a network; returns with what code it is closed."""
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        said.append(message)

    headers = [(b"host", b"test"), (b"x-auth-token", token.encode())]
    scope: Any = {"type": "websocket", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers}
    await app(
        scope | {"client": None, "server": None, "scheme": "ws", "root_path": "", "subprotocols": []}, receive, send
    )
    return int(said[-1]["code"])


async def test_an_administrator_of_one_namespace_cannot_make_one_of_all(harness: ServerHarness) -> None:
    answer = await harness.post("/tokens", {"name": "me", "role": "admin", "namespaces": ["*"]}, "local admin")
    assert answer.status_code == 403


async def test_the_journal_shows_only_what_the_token_opens(harness: ServerHarness) -> None:
    await harness.built("p1", NS)
    await harness.built("p2", "bank")
    for who, expected in (
        ("viewer", {NS}),
        ("outsider", {"bank"}),
        ("reader", {NS, "bank"}),
        ("admin", {NS, "bank", SYSTEM}),
    ):
        lines = (await harness.get("/journal?limit=1000", who)).json()["items"]
        assert {line["ns"] for line in lines} == expected, who
    assert (await harness.get("/journal?ns=bank", "viewer")).status_code == 403
    assert (await harness.get(f"/journal?ns={SYSTEM}", "reader")).status_code == 403


async def test_a_token_for_two_namespaces_reads_both_in_the_order_of_the_lines(harness: ServerHarness) -> None:
    harness.texts["two"], _ = await harness.tokens.issue("tom", Role.VIEWER, ["bank", NS])
    for number in range(3):
        await harness.built(f"a{number}", NS)
        await harness.built(f"b{number}", "bank")
    seen: list[int] = []
    after: str | None = "0"
    while after is not None:
        page: dict[str, Any] = (await harness.get(f"/journal?limit=5&after={after}", "two")).json()
        seen += [line["seq"] for line in page["items"]]
        after = page["next"]
    assert seen == sorted(set(seen))
    assert len(seen) == 12
