"""Wrong tokens are limited by address and by token id, and so are their log lines."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from stateward.access import Tokens
from stateward.config import Config
from stateward.server.app import BASE
from stateward.server.auth.audit import MAX_LINES
from stateward.server.auth.authenticator import FAILURE_BURST_S, TOKEN_CACHE_S
from tests.integration.server.live_server import open_live_server
from tests.integration.server.server_harness import NS, ServerHarness, open_server


@pytest.fixture
async def harness() -> AsyncIterator[ServerHarness]:
    async with open_server(config=Config(rate=1_000_000)) as opened:
        yield opened


RATE = Config().wrong_tokens
BURST = int(RATE * FAILURE_BURST_S)


def wrong(number: int, id_: str | None = None) -> str:
    return f"sw_{id_ or f'{number:012x}'}_guess-{number}"


def client(harness: ServerHarness, token: str, address: str = "192.0.2.7", **headers: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(harness.app, client=(address, 4711))  # type: ignore[arg-type]
    base = f"http://test{BASE}"
    return httpx.AsyncClient(transport=transport, base_url=base, headers={"X-Auth-Token": token, **headers})


async def tried(harness: ServerHarness, token: str, address: str = "192.0.2.7", **headers: str) -> int:
    async with client(harness, token, address, **headers) as one:
        return (await one.get("/kinds")).status_code


async def test_wrong_tokens_of_one_address_are_turned_away_without_a_look_into_the_store(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    check = Tokens.check

    async def counted(self: Tokens, text: str) -> object:
        looks.append(text)
        return await check(self, text)

    monkeypatch.setattr(Tokens, "check", counted)
    found = [await tried(harness, wrong(number)) for number in range(600)]
    assert found == [401] * BURST + [429] * (600 - BURST)
    assert len(looks) == BURST
    async with client(harness, wrong(1000)) as one:
        answer = await one.get("/kinds")
    assert (answer.json()["code"], answer.headers["retry-after"]) == ("too_many", "1")
    assert "wrong tokens" in answer.json()["detail"]
    assert await tried(harness, wrong(1001), "192.0.2.8") == 401, "another address has an allowance of its own"
    harness.clock.now += 1.0
    assert [await tried(harness, wrong(2000 + number)) for number in range(RATE + 1)] == [401] * RATE + [429]


async def test_wrong_secrets_for_one_token_are_limited_from_wherever_they_come(harness: ServerHarness) -> None:
    id_ = harness.texts["viewer"].split("_")[1]
    found = [await tried(harness, wrong(number, id_), f"198.51.100.{number}") for number in range(BURST + 5)]
    assert found == [401] * BURST + [429] * 5


async def test_a_token_that_was_right_before_is_not_locked_out_by_an_attacker(harness: ServerHarness) -> None:
    mine, id_ = harness.texts["viewer"], harness.texts["viewer"].split("_")[1]
    assert await tried(harness, mine) == 200
    for number in range(BURST + 5):
        await tried(harness, wrong(number, id_))
    assert await tried(harness, wrong(99, id_)) == 429
    assert await tried(harness, mine) == 200
    harness.clock.now += TOKEN_CACHE_S
    for number in range(BURST):
        await tried(harness, wrong(100 + number, id_))
    assert await tried(harness, mine) == 200, "it is looked up anew, though its address has no allowance left"
    await Tokens(harness.engine).revoke(id_)
    harness.clock.now += TOKEN_CACHE_S
    assert await tried(harness, mine, "192.0.2.99") == 401


async def test_a_token_that_is_new_here_waits_no_longer_than_it_is_told(harness: ServerHarness) -> None:
    for number in range(BURST):
        await tried(harness, wrong(number))
    async with client(harness, harness.texts["viewer"]) as one:
        answer = await one.get("/kinds")
        assert answer.status_code == 429
        harness.clock.now += int(answer.headers["retry-after"])
        assert (await one.get("/kinds")).status_code == 200


async def test_wrong_tokens_that_come_at_once_are_paid_for_afterwards(harness: ServerHarness) -> None:
    found = await asyncio.gather(*(tried(harness, wrong(number)) for number in range(4 * BURST)))
    assert set(found) <= {401, 429}
    harness.clock.now += 1.0
    if found.count(401) > BURST + RATE:  # more were looked at together than the allowance had
        assert await tried(harness, wrong(9999)) == 429
    harness.clock.now += FAILURE_BURST_S + 60.0
    assert await tried(harness, wrong(9998)) == 401, "nobody is turned away for longer than a minute"


async def test_addresses_behind_a_proxy_are_told_apart_only_if_the_proxy_is_trusted() -> None:
    async with open_server(config=Config(rate=1_000_000, trusted_proxies="10.0.0.0/24")) as harness:
        attacker, user = {"X-Forwarded-For": "6.6.6.6, 203.0.113.9"}, {"X-Forwarded-For": "203.0.113.5, 10.0.0.9"}
        for number in range(BURST):
            assert await tried(harness, wrong(number), "10.0.0.7", **attacker) == 401
        assert await tried(harness, wrong(98), "10.0.0.7", **attacker) == 429
        forged = {"X-Forwarded-For": "1.2.3.4, 203.0.113.9"}
        assert await tried(harness, wrong(99), "10.0.0.7", **forged) == 429, "what a client wrote itself does not count"
        assert await tried(harness, harness.texts["viewer"], "10.0.0.7", **user) == 200
        for number in range(BURST):
            forged = {"X-Forwarded-For": f"1.2.3.{number}"}
            assert await tried(harness, wrong(200 + number), "10.9.9.9", **forged) == 401
        assert await tried(harness, wrong(300), "10.9.9.9", **{"X-Forwarded-For": "1.2.3.200"}) == 429, "not a proxy"


async def test_a_thousand_refused_attempts_are_a_few_lines_and_a_count(
    harness: ServerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        await tried(harness, wrong(number))
    lines = [one for one in caplog.records if one.name == "stateward.audit"]
    assert len(lines) == MAX_LINES
    harness.app.state.service.audit.flush()
    counts = [vars(one) for one in caplog.records if one.name == "stateward.audit"][MAX_LINES:]
    assert sum(one["count"] for one in counts) == 1000 - MAX_LINES
    assert {(one["status"], one["peer"]) for one in counts} == {(401, "192.0.2.7"), (429, "192.0.2.7")}
    caplog.clear()
    await tried(harness, wrong(5000))
    assert [one.levelno for one in caplog.records if one.name == "stateward.audit"] == [logging.WARNING]


async def test_the_counts_of_addresses_do_not_grow_without_an_end(
    harness: ServerHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stateward.server.auth.audit.MAX_ADDRESSES", 5)
    for number in range(50):
        await tried(harness, wrong(number), f"198.51.100.{number}")
    assert len(harness.app.state.service.audit._attempts) == 6


async def test_websockets_are_limited_too(tmp_path: Path) -> None:
    async with open_live_server(tmp_path, wrong_tokens=1) as live_server:
        codes = []
        for number in range(8):
            async with live_server.stream("") as stream:
                await stream.send(f'{{"token": "{wrong(number)}"}}')
                with pytest.raises(ConnectionClosed) as closed:
                    await stream.recv()
            codes.append(closed.value.rcvd.code if closed.value.rcvd else None)
        assert codes[:5] == [4401] * 5
        assert 4429 in codes[5:]
        async with live_server.client(wrong(99)) as one:
            assert (await one.get(f"/api/v1/ns/{NS}/objects")).status_code in (401, 429)
