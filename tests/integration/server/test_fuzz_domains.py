"""Bodies that nobody would send to the routes of the domains: each is answered, and never with an error of our own.

What a route may be sent is taken from its description, and then bent: fields of the right name with anything in them,
what is no object, what is no JSON. `test_schemathesis.py` tries the same routes within their description.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.server.full_server import open_full_server
from tests.integration.server.server_harness import NS, ServerHarness

DOMAINS = ("/api/v1/ovc", "/blazar/v1", "/api/v1/edge", "/api/v1/systems")
"""The routes of mci have a test of their own, because they read leniently."""

Route = tuple[str, str, tuple[str, ...]]

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
trees = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
deep = st.sampled_from([b"[" * 50_000, b'{"name":' * 5_000 + b"1" + b"}" * 5_000, b'{"name":"\\u0000"}', b'"\\ud800"'])
MANY = settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def bodies(fields: tuple[str, ...]) -> st.SearchStrategy[bytes]:
    """Return JSON that looks like the body, JSON that does not, and what is no JSON at all."""
    near = st.dictionaries(st.sampled_from(fields or ("name",)), trees, min_size=1, max_size=5)
    return st.one_of(near.map(msgspec.json.encode), trees.map(msgspec.json.encode), st.binary(max_size=20), deep)


@pytest.fixture(scope="module")
def full_server(
    tmp_path_factory: pytest.TempPathFactory, database: str
) -> Iterator[tuple[BlockingPortal, ServerHarness]]:
    folder = tmp_path_factory.mktemp("full_server")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(open_full_server(folder, database)) as harness,
    ):
        yield portal, harness


@pytest.fixture(scope="module")
def description(full_server: tuple[BlockingPortal, ServerHarness]) -> dict[str, Any]:
    portal, harness = full_server
    found: dict[str, Any] = portal.call(harness.caller("admin").get, "http://test/docs/openapi.json").json()
    return found


def routes(description: dict[str, Any], domain: str) -> Iterator[Route]:
    """Yield every route of a domain that takes a body, with the names of the body's fields."""
    for path, item in description["paths"].items():
        for method in {"post", "put", "patch"} & item.keys() if path.startswith(domain) else ():
            content = item[method].get("requestBody", {}).get("content", {}).get("application/json", {})
            yield method.upper(), path, tuple(sorted(_fields(description, content.get("schema", {}))))


def _fields(description: dict[str, Any], schema: dict[str, Any]) -> set[str]:
    """Return the names of all fields of a record, and of the records in it."""
    named = schema.get("$ref", "").rpartition("/")[2]
    if named:
        return _fields({**description, named: None}, {} if named in description else _record(description, named))
    inner = [*schema.get("properties", {}).values(), *schema.get("oneOf", ()), *schema.get("anyOf", ())]
    inner += [schema["items"]] if isinstance(schema.get("items"), dict) else []
    return set(schema.get("properties", {})).union(*(_fields(description, one) for one in inner))


def _record(description: dict[str, Any], named: str) -> dict[str, Any]:
    found: dict[str, Any] = description["components"]["schemas"][named]
    return found


def filled(path: str, word: str) -> str:
    """Return a path with something in the place of its parameters."""
    values = {"{ns}": NS, "{space}": NS}
    parts = (values.get(part, quote(word, safe="") if part.startswith("{") else part) for part in path.split("/"))
    return "/".join(parts)


@pytest.mark.parametrize("domain", DOMAINS)
def test_no_body_breaks_a_route_of_a_domain(
    full_server: tuple[BlockingPortal, ServerHarness], description: dict[str, Any], domain: str
) -> None:
    portal, harness = full_server
    found = sorted(routes(description, domain))
    assert len(found) >= 3

    async def sent(method: str, path: str, body: bytes) -> httpx.Response:
        return await harness.caller("admin").request(method, f"http://test{path}", content=body)

    @MANY
    @given(
        st.sampled_from(found).flatmap(lambda one: st.tuples(st.just(one), bodies(one[2]))),
        st.sampled_from(["a1", "x", "0", "ä", "a b"]),
    )
    def check(drawn: tuple[Route, bytes], word: str) -> None:
        (method, path, _), body = drawn
        answer = portal.call(sent, method, filled(path, word), body)
        assert answer.status_code < 500, (method, path, body[:200], answer.text)

    check()
