"""Search over HTTP: what is found, how it is marked, and for whom."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stateward.server.routes.search_routes import fold_case
from tests.integration.server.server_harness import NS, OTHER, ServerHarness, open_server


@pytest.fixture
async def site() -> AsyncIterator[ServerHarness]:
    async with open_server() as opened:
        for ns, name in ((NS, "edge-web-1"), (NS, "web-2"), (OTHER, "web-3")):
            body = {"id": name, "kind": "ovc.vm", "labels": {"tier": "web", "stage": ns}}
            assert (await opened.post(f"/ns/{ns}/objects", body)).status_code == 202
        await opened.built()
        yield opened


async def found(site: ServerHarness, q: str, who: str = "admin", **params: Any) -> list[dict[str, str]]:
    answer = await site.get("/search", who, params={"q": q, **params})
    assert answer.status_code == 200, answer.text
    suggestions: list[dict[str, str]] = answer.json()
    return suggestions


def texts(suggestions: list[dict[str, str]], type_: str) -> list[str]:
    return [one["text"] for one in suggestions if one["type"] == type_]


async def test_suggestions_come_by_type_the_best_first_with_the_matched_part(site: ServerHarness) -> None:
    all_ = await found(site, "WEB")
    assert texts(all_, "object") == ["web-2", "web-3", "edge-web-1"]
    assert texts(all_, "label") == ["tier=web"]
    await site.put(f"/ns/{NS}/objects/web-2/protection", {"protected": True})
    assert texts(await found(site, "protected"), "label") == []  # the flag is no label of the users'
    first = {"type": "object", "text": "web-2", "matched": "web", "ns": NS, "id": "web-2"}
    assert all_[0] == first | {"kind": "ovc.vm", "state": "VIRTUAL"}


async def test_kinds_states_and_namespaces_are_found(site: ServerHarness) -> None:
    assert texts(await found(site, "ovc.v"), "kind") == ["ovc.vm"]
    (state, *_) = [one for one in await found(site, "virtual") if one["type"] == "state"]
    assert (state["kind"], state["state"], state["matched"]) == ("ovc.vm", "VIRTUAL", "VIRTUAL")
    assert texts(await found(site, OTHER[:3]), "namespace") == [OTHER]


async def test_operations_are_found_by_their_id(site: ServerHarness) -> None:
    op = (await site.get(f"/ns/{NS}/operations?object=p1")).json()["items"][0]
    (one,) = await found(site, op["id"][:20])
    assert (one["type"], one["id"], one["text"]) == ("operation", op["id"], f"{op['id']}  {op['action']} p1")


async def test_nobody_finds_what_he_may_not_read(site: ServerHarness) -> None:
    assert texts(await found(site, "web", "outsider"), "object") == ["web-3"]
    assert texts(await found(site, "stage=", "outsider"), "label") == [f"stage={OTHER}"]
    assert await found(site, "web", ns=OTHER, who="outsider", limit=1) != []
    assert (await site.get("/search", "outsider", params={"q": "web", "ns": NS})).status_code == 403
    assert await found(site, "ada") == []  # a token is no object to be found


async def test_a_search_for_nothing_is_refused(site: ServerHarness) -> None:
    for params in ({}, {"q": ""}, {"q": "a", "limit": 51}, {"q": "x" * 251}):
        assert (await site.get("/search", params=params)).status_code == 400


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(st.text(min_size=1, max_size=250))
async def test_any_text_is_searched_for_or_refused(site: ServerHarness, q: str) -> None:
    try:
        answer = await site.get("/search", params={"q": q})
    except UnicodeEncodeError:  # a lone surrogate cannot be sent
        return
    assert answer.status_code in (200, 400)
    if answer.status_code == 200:
        assert all(fold_case(one["matched"]) == fold_case(q) and one["matched"] in one["text"] for one in answer.json())
