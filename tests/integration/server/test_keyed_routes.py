"""Idempotency keys on every route that changes something: the same call twice has one effect and one answer."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from stateward.access import Right
from stateward.access.tokens import SYSTEM
from stateward.engine import Denied
from stateward.server.auth.guards import RequiresRight
from stateward.server.auth.middleware import guard_of
from stateward.server.auth.session_cookie import SAFE_METHODS
from stateward.server.http.keyed_calls import KeyedCalls, is_covered
from stateward.store.records import Key
from tests.integration.server.full_server import open_full_server
from tests.integration.server.server_harness import NS, Answer, ServerHarness, open_server

BY_THE_ENGINE = {
    f"POST /api/v1/ns/{{ns}}/{path}"
    for path in ("objects", "objects/{id}/actions/{action}", "actions/{action}", "operations/{op}/signals/{name}")
}
"""The routes whose keys the engine serves, as test_keys shows."""

HARMLESS = {
    "POST /api/v1/session": "the caller has no token that a key could belong to; a second session ends by itself",
    "DELETE /api/v1/session": "it ends the session that the request comes from, which then cannot repeat it",
}
"""The routes without keys, and why a repetition does no harm."""

HOSTS, LEASES = (f"http://test/ns/{NS}/blazar/v1/{one}" for one in ("os-hosts", "leases"))
WISH = {"resource_type": "physical:host", "min": 1, "max": 1}
LEASE = {"name": "night", "end_date": "2030-01-02 06:00", "reservations": [WISH]}


class Counted(Denied, code="counted"):
    """What the replaced handlers answer: how often they have been called."""

    calls: int
    text = "call {calls}"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerHarness]:
    async with open_full_server(tmp_path) as opened:
        yield opened


def key(text: str) -> dict[str, Any]:
    return {"headers": {"Idempotency-Key": text}}


def changing_routes(server: ServerHarness) -> Iterator[tuple[str, str, HTTPRouteHandler, bool]]:
    """Return every route that changes something, and whether its answers are kept; Tumblebug's API acts on GET, too."""
    for route in server.app.routes:
        for method, (handler, _) in sorted(route.route_handler_map.items()) if isinstance(route, HTTPRoute) else ():
            guard = guard_of(handler) if method != "OPTIONS" else None
            right = guard.right if isinstance(guard, RequiresRight) else None
            if right is Right.ACT or (right is not Right.READ and method not in {*SAFE_METHODS, "OPTIONS"}):
                yield method, route.path_format, handler, right is not None and is_covered(handler, right, method)


def example_call(description: Any, method: str, path: str) -> tuple[str, dict[str, Any]]:
    """Return a URL and a body that a route accepts, made from its description."""
    operation = description["paths"][path][method.lower()]
    query = {
        one["name"]: one["schema"].get("enum", ["x"])[0]
        for one in operation.get("parameters", ())
        if one["in"] == "query" and one.get("required")
    }
    how: dict[str, Any] = {"params": query}
    for media_type, content in operation.get("requestBody", {"content": {}})["content"].items():
        record = description["components"]["schemas"].get(content["schema"].get("$ref", "").rpartition("/")[2], {})
        examples = [one["value"] for one in content.get("examples", {}).values()] or record["examples"]
        how |= {"json": examples[0]} if media_type == "application/json" else {"files": {"file": b"x"}}
    return "http://test" + re.sub(r"{(\w+)}", lambda part: NS if part[1] == "ns" else "x", path), how


async def test_every_route_that_changes_something_is_called_once_for_one_key_and_answers_the_same(
    server: ServerHarness,
) -> None:
    description = (await server.get("http://test/docs/openapi.json")).json()
    calls, kept, others = count(1), 0, set()

    async def counted(**_: Any) -> None:
        raise Counted(next(calls))

    for method, path, handler, covered in list(changing_routes(server)):
        if not covered:
            others.add(f"{method} {path}")
            continue
        if path == "/tumblebug/not-offered":  # it stands for endpoints that do nothing
            continue
        handler._fn = wraps(handler.fn)(counted)
        url, how = example_call(description, method, path)
        how |= key(f"{method} {path}".replace(" ", ":"))
        first, second = [await server.caller("admin").request(method, url, **how) for _ in range(2)]
        assert (first.status_code, first.json()["code"]) == (409, "counted"), (method, path, first.text)
        assert (second.content, second.headers["Idempotency-Replayed"]) == (first.content, "true"), (method, path)
        kept += 1
    assert others == BY_THE_ENGINE | HARMLESS.keys()
    assert kept > 150


async def test_one_key_makes_one_lease(server: ServerHarness) -> None:
    for name in ("h1", "h2"):
        made = [await server.post(HOSTS, {"name": name}, **key(name)) for _ in range(2)]
        assert [one.status_code for one in made] == [201, 201]
        assert made[0].json() == made[1].json()
    first, second = [await server.post(LEASES, LEASE, **key("night")) for _ in range(2)]
    assert (first.status_code, first.json()) == (201, second.json())
    assert len((await server.get(LEASES)).json()["leases"]) == 1
    other = await server.post(LEASES, {**LEASE, "name": "day"}, **key("night"))
    assert (other.status_code, other.json()["code"]) == (409, "key_reused")
    theirs = await server.post(LEASES, LEASE, "operator", **key("night"))
    assert theirs.json()["lease"]["id"] != first.json()["lease"]["id"]


async def test_a_kept_answer_can_be_read_with_the_callers_token_only(server: ServerHarness) -> None:
    issued = {"name": "bob", "role": "viewer", "namespaces": [NS]}
    first, second = [await server.post("/tokens", issued, **key("bob")) for _ in range(2)]
    assert first.json()["token"] == second.json()["token"]
    assert [one["name"] for one in (await server.get("/tokens")).json()].count("bob") == 1
    mine = server.texts["admin"].split("_")[1]
    keys = [Key(SYSTEM, f"{mine} bob {end}") for end in ("call", "answer")]
    stored = await server.engine.store.transact(lambda tx: tx.idempotency_records(keys))
    assert len(stored) == 2
    assert all(first.json()["token"] not in repr(one) for one in stored.values())


@pytest.fixture
async def gated(tmp_path: Path) -> AsyncIterator[ServerHarness]:
    async with open_server() as opened:
        yield opened


class Gate:
    """A handler that waits until it is let through, and counts its calls; it can be cut off as by a crash."""

    def __init__(self, server: ServerHarness, path: str, *, crash: bool = False) -> None:
        (handler,) = [one for _, found, one, _ in changing_routes(server) if found == path]
        self._real, self._crash = handler.fn, crash
        self.calls, self.entered, self.open = 0, asyncio.Event(), asyncio.Event()

        @wraps(self._real)
        async def call(**arguments: Any) -> Any:
            return await self._call(**arguments)

        handler._fn = call

    async def _call(self, **arguments: Any) -> Any:
        self.calls += 1
        self.entered.set()
        await self.open.wait()
        done = await self._real(**arguments)
        if self._crash:
            self._crash = False
            raise asyncio.CancelledError
        return done


TOKEN = {"name": "bob", "role": "viewer", "namespaces": [NS]}


async def test_a_call_that_comes_while_the_first_is_served_gets_its_answer(gated: ServerHarness) -> None:
    gate = Gate(gated, "/api/v1/tokens")
    both = [asyncio.create_task(gated.post("/tokens", TOKEN, **key("bob"))) for _ in range(2)]
    await gate.entered.wait()
    gate.open.set()
    first, second = await asyncio.gather(*both)
    assert (gate.calls, first.status_code, first.content) == (1, 201, second.content)


async def interrupted(server: ServerHarness, path: str, call: Callable[[], Awaitable[Answer]]) -> None:
    """Make a call whose server ends before it has answered, and go on with another server."""
    Gate(server, path, crash=True).open.set()
    with pytest.raises(asyncio.CancelledError):
        await call()
    for one in server.app.middleware:
        calls: KeyedCalls = one.kwargs["keyed_calls"]  # type: ignore[union-attr]
        calls._server = "another"


async def test_an_interrupted_call_that_may_have_been_done_is_not_done_again(gated: ServerHarness) -> None:
    await interrupted(gated, "/api/v1/tokens", lambda: gated.post("/tokens", TOKEN, **key("bob")))
    again = await gated.post("/tokens", TOKEN, **key("bob"))
    assert (again.status_code, again.json()["code"]) == (409, "key_spent")
    assert "was interrupted: check whether it was done" in again.json()["detail"]
    assert [one["name"] for one in (await gated.get("/tokens")).json()].count("bob") == 1


async def test_an_interrupted_call_that_can_be_repeated_is_served_again(gated: ServerHarness) -> None:
    quota = {"objects": {}, "operations": 3}
    await interrupted(gated, "/api/v1/quotas/{ns}", lambda: gated.put(f"/quotas/{NS}", quota, **key("q")))
    answers = [await gated.put(f"/quotas/{NS}", quota, **key("q")) for _ in range(2)]
    assert [one.status_code for one in answers] == [200, 200], answers[0].text
    assert [one.headers.get("Idempotency-Replayed") for one in answers] == [None, "true"]


async def test_a_lease_whose_call_was_interrupted_is_found_by_its_key(server: ServerHarness) -> None:
    await server.post(HOSTS, {"name": "h1"})
    path = "/ns/{ns}/blazar/v1/leases"
    await interrupted(server, path, lambda: server.post(LEASES, LEASE, **key("night")))
    again = await server.post(LEASES, LEASE, **key("night"))
    assert again.status_code == 201, again.text
    assert [one["id"] for one in (await server.get(LEASES)).json()["leases"]] == [again.json()["lease"]["id"]]


async def test_a_call_that_another_server_serves_is_refused_for_now(
    gated: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def has_others() -> bool:
        return False

    await interrupted(gated, "/api/v1/tokens", lambda: gated.post("/tokens", TOKEN, **key("bob")))
    monkeypatch.setattr(gated.engine.store, "is_sole_user", has_others)
    again = await gated.post("/tokens", TOKEN, **key("bob"))
    assert (again.status_code, again.json()["code"], again.json()["retry"]) == (409, "key_in_use", True)


async def test_a_call_that_was_not_served_leaves_its_key_free(gated: ServerHarness) -> None:
    wrong: list[Answer] = [await gated.post("/tokens", {"name": "bob"}, **key("bob")) for _ in range(2)]
    assert [one.status_code for one in wrong] == [400, 400]
    assert (await gated.post("/tokens", TOKEN, **key("bob"))).status_code == 201
    for bad in ("two words", "x" * 201):
        refused = await gated.post("/tokens", TOKEN, **key(bad))
        assert (refused.status_code, refused.json()["field"]) == (400, "Idempotency-Key")


async def test_a_large_answer_is_not_kept_and_the_call_not_repeated(
    gated: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stateward.server.http.keyed_calls.MAX_KEPT", 10)
    assert (await gated.post("/tokens", TOKEN, **key("bob"))).status_code == 201
    again = await gated.post("/tokens", TOKEN, **key("bob"))
    assert (again.status_code, again.json()["code"]) == (409, "key_spent")
    assert "too large to keep" in again.json()["detail"]
