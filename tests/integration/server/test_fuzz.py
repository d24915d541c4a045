"""Random bodies and parameters: each gets a response that names the fault, and changes nothing."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stateward.store import open_store
from tests.integration.server.server_harness import NS, Answer, ServerHarness, open_server

ROUTES = {
    "create": ("POST", f"/ns/{NS}/objects", {"id", "kind", "action", "spec", "labels", "facts", "priority", "args"}),
    "act": ("POST", f"/ns/{NS}/objects/p1/actions/mend", {"args", "spec", "facts", "locks", "tree", "not_before"}),
    "group": ("POST", f"/ns/{NS}/actions/mend", {"selector", "facts", "args", "whole"}),
    "plan": ("POST", f"/ns/{NS}/plan", {"requests"}),
    "labels": ("PUT", f"/ns/{NS}/objects/p9/labels", {"labels"}),
    "lane": ("PUT", "/lanes/", {"grp", "capacity"}),
    "token": ("POST", "/tokens", {"name", "role", "expires"}),
    "quota": ("PUT", "/quotas/a%2Fb", {"objects", "operations"}),
}

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
trees = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


def bodies(fields: set[str]) -> st.SearchStrategy[bytes]:
    """Return JSON that looks like the body, JSON that does not, and what is no JSON at all."""
    near = st.dictionaries(st.sampled_from(sorted(fields)) | st.text(max_size=5), trees, max_size=5)
    return st.one_of(near.map(msgspec.json.encode), trees.map(msgspec.json.encode), st.binary())


@asynccontextmanager
async def furnished(database: str) -> AsyncIterator[ServerHarness]:
    async with open_server(open_store(database or ":memory:", migrate=True)) as harness:
        await harness.built("p1")
        yield harness


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness() -> AsyncIterator[ServerHarness]:
    """Give the same server to all tests, because none of them changes anything."""
    async with furnished("") as opened:
        yield opened


in_one_loop = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("name", ROUTES)
def test_no_body_whatsoever_breaks_the_server_or_changes_anything(name: str, own_database: str) -> None:
    method, path, fields = ROUTES[name]
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(furnished(own_database)) as harness:

        async def send(body: bytes) -> Answer:
            return await harness.caller("admin").request(method, path, content=body)

        before = portal.call(harness.everything)

        @settings(max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(body=bodies(fields))
        def check(body: bytes) -> None:
            answer = portal.call(send, body)
            assert 400 <= answer.status_code < 500 or (name == "plan" and answer.status_code == 200), answer.text
            if answer.status_code == 400:
                assert answer.json()["field"]

        check()
        assert portal.call(harness.everything) == before


AWKWARD: list[tuple[str | bytes, str, str]] = [
    # body                                    what is wrong with it       the field that is named
    ('{"id": "a", "kind": "ovc.vm", "x": 1}', "an unknown field", "x"),
    ('{"kind": "ovc.vm"}', "a missing field", "id"),
    ('{"id": 1, "kind": "ovc.vm"}', "a number as text", "id"),
    ('{"id": "a", "kind": "ovc.vm", "priority": "1"}', "text as a number", "priority"),
    ('{"id": "a", "kind": "ovc.vm", "labels": {"a": 1}}', "a label that is no text", "labels[...]"),
    ('{"id": "a/b", "kind": "ovc.vm"}', "a slash in a name", "id"),
    ('{"id": "a\\n", "kind": "ovc.vm"}', "a line end in a name", "id"),
    ('{"id": "a\\u0000", "kind": "ovc.vm"}', "a NUL in a name", "id"),
    ('{"id": "a", "kind": "ovc.vm", "not_before": "2026-01-01T00:00:00"}', "a time without a zone", "not_before"),
    ('{"id": "a", "kind": "ovc.vm", "spec": []}', "a spec that is no object", "spec"),
    ('{"id": "a", "kind": "test.pump", "action": "fly"}', "an action of no lifecycle", "action"),
    ("{" * 100_000, "nesting without an end", "body"),
    ('{"id": "a", "kind": "ovc.vm", "spec": ' + '{"a":' * 5_000 + "1" + "}" * 5_001, "nesting that ends", "body"),
    ('"\\ud800"', "half of a pair", "body"),
    (b"\xff\xfe", "no text", "body"),
    ("", "nothing", "body"),
]


@in_one_loop
@pytest.mark.parametrize(("body", "_", "field"), AWKWARD, ids=[what for _, what, _ in AWKWARD])
async def test_what_is_wrong_with_a_body_is_named(harness: ServerHarness, body: Any, _: str, field: str) -> None:
    answer = await harness.caller("admin").post(f"/ns/{NS}/objects", content=body)
    assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert [one["id"] for one in (await harness.get(f"/ns/{NS}/objects")).json()["items"]] == ["p1"]


@in_one_loop
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=-1", "limit"),
        ("limit=x", "limit"),
        ("limit=99999999999999999999", "limit"),
        ("label=x", "label"),
        ("label==x", "label"),
        ("kind=a%00b", "kind"),
        ("state=a%00b", "state"),
        ("q=", "q"),
        ("after=%0A", "after"),
    ],
)
async def test_what_is_wrong_with_a_query_is_named(harness: ServerHarness, query: str, field: str) -> None:
    answer = await harness.get(f"/ns/{NS}/objects?{query}")
    assert (answer.status_code, answer.json()["field"]) == (400, field)


@in_one_loop
@pytest.mark.parametrize("path", ["/ns/a%00b/objects", "/ns/%F0/objects", "/ns/-/objects", f"/ns/{NS}/objects/a%0Ab"])
async def test_a_name_that_cannot_be_one_is_bad_input(harness: ServerHarness, path: str) -> None:
    assert (await harness.get(path)).status_code == 400


@in_one_loop
@pytest.mark.parametrize("key", ["a b", "\x7f", "x" * 201])
async def test_a_key_that_cannot_be_one_is_bad_input(harness: ServerHarness, key: str) -> None:
    answer = await harness.post(f"/ns/{NS}/objects/p1/actions/pump", headers={"Idempotency-Key": key})
    assert (answer.status_code, answer.json()["field"]) == (400, "Idempotency-Key")


Make = Callable[[ServerHarness], Any]
REFUSED: dict[str, tuple[int, Make]] = {
    "an unknown object": (404, lambda h: h.post(f"/ns/{NS}/objects/p9/actions/pump")),
    "an unknown action": (404, lambda h: h.post(f"/ns/{NS}/objects/p1/actions/dance")),
    "an unknown operation": (404, lambda h: h.post(f"/ns/{NS}/operations/none/cancel")),
    "an unknown token": (404, lambda h: h.caller("admin").delete("/tokens/none")),
    "a refused action": (409, lambda h: h.post(f"/ns/{NS}/objects/p1/actions/mend")),
    "a refused group": (409, lambda h: h.post(f"/ns/{NS}/actions/mend", {"selector": {"q": "p"}})),
    "an empty group": (409, lambda h: h.post(f"/ns/{NS}/actions/pump", {"selector": {"kind": "none"}})),
    "an existing object": (409, lambda h: h.post(f"/ns/{NS}/objects", {"id": "p1", "kind": "test.pump"})),
    "an older version": (
        412,
        lambda h: h.post(f"/ns/{NS}/objects/p1/actions/pump", headers={"If-Match": '"1"'}),
    ),
    "labels of an older version": (
        412,
        lambda h: h.put(f"/ns/{NS}/objects/p1/labels", {"labels": {"a": "b"}}, headers={"If-Match": '"1"'}),
    ),
    "a token in the past": (
        400,
        lambda h: h.post(
            "/tokens", {"name": "a", "role": "viewer", "namespaces": ["a"], "expires": "2001-01-01T00:00:00Z"}
        ),
    ),
}


@in_one_loop
@pytest.mark.parametrize("what", REFUSED)
async def test_a_refused_request_changes_nothing(harness: ServerHarness, what: str) -> None:
    status, make = REFUSED[what]
    before = await harness.everything()
    answer = await make(harness)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert {"type", "title", "status", "detail", "code"} <= answer.json().keys()
    assert await harness.everything() == before
