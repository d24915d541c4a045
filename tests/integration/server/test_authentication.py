from base64 import b64encode
from collections.abc import AsyncIterator

import pytest
from litestar.routes import HTTPRoute

from stateward.access import Role, Tokens
from stateward.config import Config
from stateward.server.app import BASE
from stateward.server.auth.authenticator import TOKEN_CACHE_S
from stateward.server.http.fast_path import fast_route_of
from stateward.store.errors import Unavailable
from tests.integration.server.server_harness import NS, ServerHarness, open_server


@pytest.mark.parametrize("way", ["bearer", "basic", "header", "both"])
async def test_a_token_is_presented_in_any_of_three_ways(harness: ServerHarness, way: str) -> None:
    text = harness.texts["viewer"]
    basic = b64encode(f"anybody:{text}".encode()).decode()
    headers = {
        "bearer": {"Authorization": f"bearer {text}"},
        "basic": {"Authorization": f"Basic {basic}"},
        "header": {"X-Auth-Token": text},
        "both": {"Authorization": "Negotiate x", "X-Auth-Token": text},
    }[way]
    async with harness.client(headers) as client:
        assert (await client.get("/kinds")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic !!!"},
        {"Authorization": f"Basic {b64encode(b'no colon').decode()}"},
        {"Authorization": "Bearer sw_x"},
        {"Authorization": "Bearer sw__"},
        {"Authorization": f"Bearer {'x' * 100_000}"},
        {"X-Auth-Token": "\xff\xfe"},
    ],
)
async def test_what_is_no_token_is_refused_with_how_to_present_one(
    harness: ServerHarness, headers: dict[str, str]
) -> None:
    async with harness.client({}) as client:
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        answer = await client.get("/kinds", headers=raw)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="stateward"'
    assert answer.json()["code"] == "not_authenticated"


async def test_a_token_with_another_secret_is_refused(harness: ServerHarness) -> None:
    text = harness.texts["admin"][:-1] + ("a" if harness.texts["admin"][-1] != "a" else "b")
    async with harness.client({"Authorization": f"Bearer {text}"}) as client:
        assert (await client.get("/kinds")).status_code == 401


async def test_a_token_is_looked_up_once_in_a_while(harness: ServerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    check = Tokens.check

    async def counted(self: Tokens, text: str) -> object:
        looks.append(text)
        return await check(self, text)

    monkeypatch.setattr(Tokens, "check", counted)
    for _ in range(10):
        await harness.get("/kinds")
    assert len(looks) == 1
    harness.clock.now += TOKEN_CACHE_S
    await harness.get("/kinds")
    assert len(looks) == 2


async def test_a_token_revoked_elsewhere_is_refused_after_two_seconds_at_the_latest(harness: ServerHarness) -> None:
    assert TOKEN_CACHE_S <= 2.0
    assert (await harness.get("/kinds", "viewer")).status_code == 200
    await Tokens(harness.engine).revoke(harness.texts["viewer"].split("_")[1])
    harness.clock.now += TOKEN_CACHE_S
    assert (await harness.get("/kinds", "viewer")).status_code == 401


async def test_a_token_revoked_here_is_refused_at_once(harness: ServerHarness) -> None:
    assert (await harness.get("/kinds", "viewer")).status_code == 200
    assert (await harness.caller("admin").delete(f"/tokens/{harness.texts['viewer'].split('_')[1]}")).status_code == 200
    assert (await harness.get("/kinds", "viewer")).status_code == 401


async def test_a_token_that_has_expired_is_refused(harness: ServerHarness) -> None:
    now = await harness.engine.store.reader.time()
    harness.texts["brief"], info = await harness.tokens.issue("brief", Role.VIEWER, [NS], now + 3600)
    assert (await harness.get("/kinds", "brief")).status_code == 200
    await harness.engine.act("(system)", f"token-{info.id}", "expire", actor="clock")
    harness.clock.now += TOKEN_CACHE_S
    assert (await harness.get("/kinds", "brief")).status_code == 401


async def test_a_store_that_fails_refuses_nobody_for_longer_than_it_fails(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: object) -> None:
        raise Unavailable("postgresql://user:password@host")

    with monkeypatch.context() as patched:
        patched.setattr(Tokens, "check", down)
        answer = await harness.get("/kinds")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "password" not in answer.text
    assert (await harness.get("/kinds")).status_code == 200


async def test_a_token_that_calls_too_often_is_told_when_to_come_back() -> None:
    async with open_server(config=Config(rate=5)) as harness:
        answers = [await harness.get("/kinds") for _ in range(7)]
        assert [one.status_code for one in answers] == [200] * 5 + [429] * 2
        assert answers[-1].headers["retry-after"] == "1"
        assert (answers[-1].json()["code"], answers[-1].json()["retry"]) == ("too_many", True)
        assert (await harness.get("/kinds", "viewer")).status_code == 200
        harness.clock.now += 0.2
        assert [(await harness.get("/kinds")).status_code for _ in range(2)] == [200, 429]


async def test_a_body_that_is_too_large_is_refused() -> None:
    async with open_server(config=Config(body_limit=1000)) as harness:
        body = {"id": "p1", "kind": "ovc.vm", "spec": {"text": "x" * 1000}}
        answer = await harness.post(f"/ns/{NS}/objects", body)
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
        assert answer.headers["content-type"] == "application/problem+json"

        async def drops() -> AsyncIterator[bytes]:
            for _ in range(200):
                yield b'"' + b"x" * 10

        streamed = await harness.caller("admin").post(f"/ns/{NS}/objects", content=drops())
        assert streamed.status_code == 413
        assert (await harness.get(f"/ns/{NS}/objects")).json()["items"] == []


async def test_all_routes_of_the_api_are_answered_at_the_entrance(harness: ServerHarness) -> None:
    routes = [one for one in harness.app.routes if isinstance(one, HTTPRoute) and one.path.startswith(BASE)]
    left = [
        one.path
        for one in routes
        for method, (handler, _) in one.route_handler_map.items()
        if method != "OPTIONS" and fast_route_of(handler) is None
    ]
    assert (len(routes) > 20, left) == (True, [])


async def test_a_server_without_the_fast_path_gives_the_same_responses() -> None:
    responses = []
    for fast_path in (True, False):
        async with open_server(fast_path=fast_path) as harness:
            created = await harness.post(f"/ns/{NS}/objects", {"id": "p1", "kind": "test.pump"}, "operator")
            found = await harness.get(f"/ns/{NS}/objects/p1", "viewer")
            refused = await harness.get(f"/ns/{NS}/objects?limit=x", "viewer")
            responses.append(
                [(one.status_code, sorted(one.headers), one.json().keys()) for one in (created, found, refused)]
            )
    assert responses[0] == responses[1]
    assert [status for status, *_ in responses[0]] == [202, 200, 400]
