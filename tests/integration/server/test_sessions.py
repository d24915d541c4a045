"""Sessions of browsers: they last across processes, end with their token, and obey our own page alone."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from stateward.access import Role
from stateward.access.roles import Right
from stateward.access.sessions import SESSION_S, Sessions
from stateward.access.tokens import SYSTEM
from stateward.config import Config
from stateward.server.app import BASE
from stateward.server.auth.authenticator import TOKEN_CACHE_S
from stateward.server.auth.session_cookie import require_own_page
from stateward.server.errors import Forbidden
from tests.integration.server.live_server import LiveServer, said
from tests.integration.server.server_harness import NS, ServerHarness, open_server

PAGE = {"X-Stateward-Request": "1", "Origin": "http://test"}
"""The headers of the console's own requests, over plain HTTP."""

PUMP = {"id": "p1", "kind": "test.pump", "action": "build"}


@asynccontextmanager
async def signed_in(site: ServerHarness, who: str = "operator") -> AsyncIterator[httpx.AsyncClient]:
    """A browser that has signed in."""
    async with site.client({}) as browser:
        answer = await browser.post("/session", json={"token": site.texts[who]}, headers=PAGE)
        assert answer.status_code == 201, answer.text
        yield browser


def cookie_of(browser: httpx.AsyncClient) -> str:
    (text,) = browser.cookies.values()
    return text


async def status_with(site: ServerHarness, text: str) -> int:
    async with site.client({"Cookie": f"stateward-session={text}"}) as browser:
        return (await browser.get("/kinds")).status_code


async def test_a_session_reads_and_acts_as_the_token_it_was_opened_with(site: ServerHarness) -> None:
    async with signed_in(site) as browser:
        assert (await browser.get(f"/ns/{NS}/objects")).status_code == 200
        assert (await browser.get("/ns/bank/objects")).status_code == 403
        made = await browser.post(f"/ns/{NS}/objects", json=PUMP, headers=PAGE)
        assert made.status_code == 202
        assert made.json()["operation"]["who"] == "olga"


async def test_scripts_cannot_read_the_cookie_and_it_is_no_token(site: ServerHarness) -> None:
    async with site.client({}) as browser:
        answer = await browser.post("/session", json={"token": site.texts["operator"]}, headers=PAGE)
        set_cookie = answer.headers["set-cookie"]
        assert "HttpOnly; SameSite=Strict" in set_cookie
        assert "Secure" not in set_cookie
        secret = site.texts["operator"].split("_")[2]
        assert secret not in set_cookie + answer.text
        assert f"Max-Age={int(SESSION_S) - 1}" in set_cookie or f"Max-Age={int(SESSION_S)}" in set_cookie
        text = cookie_of(browser)
    for headers in ({"Authorization": f"Bearer {text}"}, {"X-Auth-Token": text}):
        async with site.client(headers) as client:
            assert (await client.get("/kinds")).status_code == 401


@pytest.mark.parametrize("origin", ["https://test", "https://console.example"])
async def test_over_tls_the_cookie_is_secure_and_bound_to_the_host(harness: ServerHarness, origin: str) -> None:
    transport = httpx.ASGITransport(harness.app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url=f"{origin}{BASE}") as browser:
        page = {"X-Stateward-Request": "1", "Origin": origin, "Sec-Fetch-Site": "same-origin"}
        answer = await browser.post("/session", json={"token": harness.texts["viewer"]}, headers=page)
        assert answer.headers["set-cookie"].startswith("__Host-stateward-session=ss_")
        assert answer.headers["set-cookie"].endswith("; Secure")
        assert (await browser.get("/kinds")).status_code == 200
        planted = {"Cookie": f"stateward-session={cookie_of(browser)}"}
    async with httpx.AsyncClient(transport=transport, base_url=f"{origin}{BASE}", headers=planted) as browser:
        assert (await browser.get("/kinds")).status_code == 401, "a sibling domain could have planted it"


async def test_behind_a_proxy_that_ends_tls_the_cookie_is_secure_too(harness: ServerHarness) -> None:
    async with harness.client({}) as browser:
        page = PAGE | {"Origin": "https://console.example", "Sec-Fetch-Site": "same-origin"}
        answer = await browser.post("/session", json={"token": harness.texts["viewer"]}, headers=page)
        name, _, text = answer.headers["set-cookie"].partition(";")[0].partition("=")
        assert name == "__Host-stateward-session"
    async with harness.client({"Cookie": f"{name}={text}"}) as browser:
        assert (await browser.get("/kinds")).status_code == 200


async def test_servers_on_other_ports_of_a_host_have_cookies_of_their_own(harness: ServerHarness) -> None:
    async with harness.client({"Host": "test:8080"}) as browser:
        page = PAGE | {"Origin": "http://test:8080"}
        answer = await browser.post("/session", json={"token": harness.texts["viewer"]}, headers=page)
        assert answer.headers["set-cookie"].startswith("stateward-session-8080=")


# --- attacks ---------------------------------------------------------------------------------------------------------

FOREIGN = {
    "a form of another site": {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    "a page on another port": {"Origin": "http://test:8080", "Sec-Fetch-Site": "same-site", "X-Stateward-Request": "1"},
    "a page that hides its origin": {"Origin": "null", "X-Stateward-Request": "1"},
    "an old browser on another page": {"Origin": "http://evil.example", "X-Stateward-Request": "1"},
    "nothing that says where it comes from": {"X-Stateward-Request": "1"},
    "an address that was typed": {"Sec-Fetch-Site": "none", "X-Stateward-Request": "1"},
    "our page without its header": {"Origin": "http://test", "Sec-Fetch-Site": "same-origin"},
    "our page with another value": {"Origin": "http://test", "X-Stateward-Request": "yes"},
}


@pytest.mark.parametrize("page", FOREIGN)
async def test_what_another_page_sends_changes_nothing(harness: ServerHarness, page: str) -> None:
    async with signed_in(harness) as browser:
        before = await harness.everything()
        calls = [
            ("POST", f"/ns/{NS}/objects", PUMP),
            ("POST", f"/ns/{NS}/plan", {"requests": []}),
            ("DELETE", f"/ns/{NS}/objects/p1", None),
            ("DELETE", "/session", None),
            ("POST", "/session", {"token": harness.texts["admin"]}),
        ]
        for method, path, body in calls:
            answer = await browser.request(method, path, json=body, headers=FOREIGN[page])
            assert answer.status_code in (403, 405), (method, path, answer.text)
            assert "set-cookie" not in answer.headers
        form = {"Content-Type": "text/plain", **FOREIGN[page]}
        assert (await browser.post(f"/ns/{NS}/objects", content=b"{}", headers=form)).status_code == 403
        assert await harness.everything() == before
        assert (await browser.get("/kinds")).status_code == 200, "the session goes on"


@pytest.mark.parametrize("page", ["a form of another site", "a page on another port", "a page that hides its origin"])
async def test_what_another_page_reads_is_refused(harness: ServerHarness, page: str) -> None:
    async with signed_in(harness) as browser:
        assert (await browser.get("/kinds", headers=FOREIGN[page])).status_code == 403
        assert (await browser.get("/kinds", headers={"Sec-Fetch-Site": "none"})).status_code == 200
        assert (await browser.get("/kinds", headers={"Sec-Fetch-Site": "same-origin"})).status_code == 200


async def test_a_token_needs_no_header_of_the_page(harness: ServerHarness) -> None:
    headers = {"Origin": "https://elsewhere.example", "Sec-Fetch-Site": "cross-site"}
    assert (await harness.post(f"/ns/{NS}/objects", PUMP, "operator", headers=headers)).status_code == 202


@pytest.mark.parametrize("text", ["ss_000000000000_forged", "ss__", "ss_", "", "x" * 5000, "sw_000000000000_x"])
async def test_a_forged_cookie_opens_nothing(harness: ServerHarness, text: str) -> None:
    assert await status_with(harness, text) == 401


async def test_a_cookie_with_another_secret_or_another_id_opens_nothing(harness: ServerHarness) -> None:
    async with signed_in(harness) as one, signed_in(harness, "admin") as other:
        (_, mine, secret), (_, theirs, _) = (cookie_of(browser).split("_", 2) for browser in (one, other))
        assert await status_with(harness, f"ss_{theirs}_{secret}") == 401
        assert await status_with(harness, f"ss_{mine}_{secret[:-1]}") == 401
        assert await status_with(harness, f"ss_{mine}_{secret}") == 200


async def test_a_token_in_the_place_of_the_cookie_opens_nothing(harness: ServerHarness) -> None:
    assert await status_with(harness, harness.texts["admin"]) == 401


async def test_who_signs_in_gets_a_new_session_and_the_one_before_is_over(harness: ServerHarness) -> None:
    """A session that an attacker has planted in the browser is never the one of who signs in."""
    async with signed_in(harness, "viewer") as browser:
        planted = cookie_of(browser)
        await browser.post("/session", json={"token": harness.texts["admin"]}, headers=PAGE)
        assert cookie_of(browser) != planted
        assert await status_with(harness, planted) == 401


@pytest.mark.parametrize("token", ["", "sw_000000000000_wrong", "ss_000000000000_wrong", "x" * 201, 5, None])
async def test_nobody_signs_in_with_what_is_no_token(harness: ServerHarness, token: object) -> None:
    async with harness.client(PAGE) as browser:
        answer = await browser.post("/session", json={"token": token})
        assert answer.status_code in (400, 401)
        assert "set-cookie" not in answer.headers


async def test_an_agent_does_not_sign_in(harness: ServerHarness) -> None:
    async with harness.client(PAGE) as browser:
        assert (await browser.post("/session", json={"token": harness.texts["agent"]})).status_code == 403


async def test_wrong_tokens_at_the_sign_in_are_limited_as_everywhere() -> None:
    async with open_server(config=Config(wrong_tokens=1)) as site, site.client(PAGE) as browser:
        answers = [await browser.post("/session", json={"token": "sw_000000000000_wrong"}) for _ in range(7)]
        assert [one.status_code for one in answers][0::6] == [401, 429]


async def test_no_cookie_and_no_token_of_a_sign_in_is_logged(
    harness: ServerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with signed_in(harness) as browser:
            text = cookie_of(browser)
            await browser.post(f"/ns/{NS}/objects", json=PUMP)
            await browser.get("/ns/bank/objects")
            await browser.post("/session", json={"token": text}, headers=PAGE)
    kept = caplog.text + str([vars(one) for one in caplog.records]) + str(await harness.everything())
    for secret in (text.split("_", 2)[2], harness.texts["operator"].split("_", 2)[2]):
        assert secret not in kept
    assert text.split("_")[1] in kept, "refusals name the session"


# --- ends ------------------------------------------------------------------------------------------------------------


async def test_to_sign_out_ends_the_session_in_all_tabs_and_takes_the_cookie_away(site: ServerHarness) -> None:
    async with signed_in(site) as browser:
        text = cookie_of(browser)
        answer = await browser.delete("/session", headers=PAGE)
        assert (answer.status_code, answer.content) == (204, b"")
        assert "Max-Age=0" in answer.headers["set-cookie"]
        assert await status_with(site, text) == 401
        assert (await browser.delete("/session", headers=PAGE)).status_code == 204, "once more does no harm"


async def test_a_revoked_token_ends_its_sessions(site: ServerHarness) -> None:
    async with signed_in(site) as browser:
        token = site.texts["operator"].split("_")[1]
        assert (await site.caller("admin").delete(f"/tokens/{token}")).status_code == 200
        assert (await browser.get("/kinds")).status_code == 401


async def test_a_session_that_another_server_has_closed_is_refused_after_two_seconds(site: ServerHarness) -> None:
    async with signed_in(site) as browser:
        assert (await browser.get("/kinds")).status_code == 200
        sessions = Sessions(site.engine, site.tokens)
        grant = await sessions.check(cookie_of(browser))
        assert grant is not None
        await sessions.close(grant)
        site.clock.now += TOKEN_CACHE_S + 0.1
        assert (await browser.get("/kinds")).status_code == 401
        await sessions.close(grant)


async def test_a_session_lasts_no_longer_than_its_token(site: ServerHarness) -> None:
    now = await site.engine.store.reader.time()
    text, _ = await site.tokens.issue("brief", Role.VIEWER, [NS], now + 60)
    grant = await site.tokens.check(text)
    assert grant is not None
    _, expires = await Sessions(site.engine, site.tokens).open(grant)
    assert expires == now + 60


async def test_a_session_expires_and_is_removed(site: ServerHarness) -> None:
    async with signed_in(site) as browser:
        id_ = cookie_of(browser).split("_")[1]
        await site.engine.act("(system)", f"session-{id_}", "expire", actor="clock")
        site.clock.now += TOKEN_CACHE_S + 0.1
        assert (await browser.get("/kinds")).status_code == 401
        line = (await site.get("/journal?object=session-" + id_)).json()["items"][-1]
        assert (line["event"], line["target"]) == ("expire", "(gone)")


async def test_a_session_is_over_at_its_time_though_its_timer_is_late(
    site: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions(site.engine, site.tokens)
    grant = await site.tokens.check(site.texts["operator"])
    assert grant is not None
    text, expires = await sessions.open(grant)
    assert await sessions.check(text) is not None
    monkeypatch.setattr(site.engine.store.reader, "time", AsyncMock(return_value=expires))
    assert await sessions.check(text) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "none"}, 403),  # a link in a mail, or an address that was typed
        ({"Sec-Fetch-Site": "same-origin"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "X-Stateward-Request": "1"}, 200),
    ],
)
def test_a_get_that_acts_needs_the_header_of_our_page(headers: dict[str, str], status: int) -> None:
    names = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope: Any = {"type": "http", "method": "GET", "headers": names}
    with nullcontext() if status == 200 else pytest.raises(Forbidden):
        require_own_page(scope, Right.ACT)
    require_own_page(scope, Right.READ)


# --- streams ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def live_session(server: LiveServer) -> AsyncIterator[tuple[httpx.AsyncClient, dict[str, str]]]:
    """Sign in over a real port; yields the browser, and the headers of the WebSockets that its page opens."""
    page = PAGE | {"Origin": server.url}
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, headers=page) as browser:
        answer = await browser.post("/api/v1/session", json={"token": server.admin})
        assert answer.status_code == 201, answer.text
        yield browser, {"Cookie": answer.headers["set-cookie"].partition(";")[0], "Origin": server.url}


async def close_code(stream: ClientConnection) -> int:
    """Read to the end, and return its code."""
    with suppress(ConnectionClosed):
        while True:
            await said(stream)
    return stream.close_code or 0


async def test_a_stream_is_opened_with_the_cookie_and_ends_when_another_tab_signs_out(live_server: LiveServer) -> None:
    async with live_session(live_server) as (browser, headers), live_server.page_stream(headers) as stream:
        await stream.send("{}")
        assert "snapshot" in await said(stream)
        await browser.delete("/api/v1/session")
        assert await close_code(stream) == 4401


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "null", None])
async def test_a_stream_that_another_page_opens_is_closed(live_server: LiveServer, origin: str | None) -> None:
    async with live_session(live_server) as (_, headers):
        foreign = {"Cookie": headers["Cookie"], **({} if origin is None else {"Origin": origin})}
        async with live_server.page_stream(foreign) as stream:
            await stream.send("{}")
            assert await close_code(stream) == 4403


async def test_a_stream_that_goes_on_is_told_at_once_that_it_is_open(live_server: LiveServer) -> None:
    async with live_server.stream() as stream:
        await stream.send("{}")
        seq = (await said(stream))["snapshot"]["seq"]
    async with live_server.stream() as stream:
        await stream.send(json.dumps({"after": seq}))
        assert await said(stream) == {"lines": [], "seq": seq}


async def test_the_events_of_an_operation_are_followed_with_the_cookie(live_server: LiveServer) -> None:
    await live_server.define("a", "one")
    done = await live_server.engine.act("a", "one", "deploy")
    assert done.operation is not None
    async with live_session(live_server) as (browser, _):
        answer = await browser.get(f"/api/v1/ns/a/operations/{done.operation.id}/events")
    assert "event: end" in answer.text


async def test_tokens_and_sessions_are_stored_with_the_timers_of_their_expiry(
    site: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed after a token was stored has also stored when it ends."""

    async def die(*_: object) -> None:
        raise ConnectionResetError

    monkeypatch.setattr(site.engine, "set_timer", die)
    monkeypatch.setattr(site.engine, "unset_timer", die)
    until = await site.engine.store.reader.time() + 1000.0
    _, info = await site.tokens.issue("ann", Role.VIEWER, [NS], until)
    grant = await site.tokens.grant_of(info.id)
    assert grant is not None
    sessions = Sessions(site.engine, site.tokens)
    text, _ = await sessions.open(grant)
    opened = await sessions.check(text)
    assert opened is not None
    timers = {timer.id: timer.due for timer in await site.engine.store.reader.timers(SYSTEM, 10)}
    assert timers == {f"expiry of {info.id}": until, f"expiry of session-{opened.session}": until}
    await sessions.close(opened)
    await site.tokens.revoke(info.id)
    assert await site.engine.store.reader.timers(SYSTEM, 10) == []
