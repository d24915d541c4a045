"""Pages of other origins: allowed for the origins of the setting, with a token of their own and never by a cookie."""

from collections.abc import AsyncIterator

import httpx
import pytest

from stateward.access import Tokens
from stateward.access.quotas import quota_kind
from stateward.access.tokens import token_kind
from stateward.config import Config
from stateward.engine import Engine
from stateward.errors import BadInput
from stateward.server.app import create_app
from stateward.server.http.cross_origin import read_origins
from stateward.store import open_store

MAP, EVIL = "https://map.example:1324", "https://evil.example"
ASKS = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    engine = Engine(open_store(":memory:"), [token_kind(), quota_kind()])
    async with engine:
        app = create_app(engine, Tokens(engine), Config(cors_origins=MAP))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as opened:  # type: ignore[arg-type]
            yield opened


async def test_a_page_of_an_allowed_origin_may_read_answers_and_no_other_may(client: httpx.AsyncClient) -> None:
    allowed = await client.get("/healthz", headers={"Origin": MAP})
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, MAP)
    assert "Origin" in allowed.headers["vary"]
    refused = await client.get("/healthz", headers={"Origin": EVIL})
    assert "access-control-allow-origin" not in refused.headers
    error = await client.get("/api/v1/kinds", headers={"Origin": MAP})
    assert (error.status_code, error.headers["access-control-allow-origin"]) == (401, MAP)


async def test_a_preflight_is_answered_for_allowed_origins_alone(client: httpx.AsyncClient) -> None:
    allowed = await client.options("/api/v1/kinds", headers={"Origin": MAP, **ASKS})
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (204, MAP)
    assert "Authorization" in allowed.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in allowed.headers
    refused = await client.options("/api/v1/kinds", headers={"Origin": EVIL, **ASKS})
    assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize("text", ["*", "map.example", "https://map.example/", "https://*", "null", "ftp://a"])
def test_an_origin_is_exact(text: str) -> None:
    if text == "https://*":
        assert read_origins(text) == {text}  # a host of that name: no browser has it as its origin
        return
    with pytest.raises(BadInput, match="cors_origins"):
        read_origins(text)


def test_origins_are_separated_by_commas() -> None:
    assert read_origins(f"{MAP}, {EVIL},") == {MAP, EVIL}
    assert read_origins("") == frozenset()
