"""Sorted lists of objects over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.engine.record_kinds import RecordWork
from tests.integration.server.server_harness import NS, OTHER, ServerHarness, open_server


@pytest.fixture
async def site() -> AsyncIterator[ServerHarness]:
    async with open_server(also=[RecordWork().kind()]) as opened:
        for number, (ns, tier) in enumerate([(NS, "web"), (OTHER, "db"), (NS, "app"), (NS, None), (OTHER, "web")]):
            labels = {} if tier is None else {"tier": tier}
            await opened.post(f"/ns/{ns}/objects", {"id": f"vm-{number}", "kind": "ovc.vm", "labels": labels})
        for name, ttl in (("a", 1000), ("b", 60), ("c", 300)):
            spec = {"address": "192.0.2.1", "ttl": ttl, "login": {"user": name, "password": "hush-hush"}}
            answer = await opened.post(f"/ns/{NS}/objects", {"id": name, "kind": "dns.record", "spec": spec})
            await opened.ended(answer)
        yield opened


async def listed(site: ServerHarness, path: str, who: str = "admin", **params: Any) -> list[str]:
    """Return the ids of all pages of two objects each."""
    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        answer = await site.get(path, who, params={**params, "limit": 2, **after})
        assert answer.status_code == 200, answer.text
        found += [one["id"] for one in answer.json()["items"]]
        if answer.json()["next"] is None:
            return found
        after = {"after": answer.json()["next"]}


async def test_objects_are_sorted_over_all_pages(site: ServerHarness) -> None:
    path = f"/ns/{NS}/objects"
    assert await listed(site, path, kind="ovc.vm", sort="label.tier") == ["vm-3", "vm-2", "vm-0"]
    assert await listed(site, path, kind="ovc.vm", sort="-created") == ["vm-3", "vm-2", "vm-0"]
    assert await listed(site, path, kind="dns.record", sort="spec.ttl") == ["b", "c", "a"]


async def test_objects_of_all_namespaces_are_those_of_the_token(site: ServerHarness) -> None:
    assert await listed(site, "/objects", kind="ovc.vm") == [f"vm-{number}" for number in range(5)]
    assert await listed(site, "/objects", kind="ovc.vm", sort="ns", label="tier=web") == ["vm-4", "vm-0"]
    assert await listed(site, "/objects", "outsider", kind="ovc.vm", sort="-label.tier") == ["vm-4", "vm-1"]


@pytest.mark.parametrize(
    ("sort", "kind", "words"),
    [
        ("stat", "ovc.vm", "did you mean 'state'?"),
        ("error", "ovc.vm", "must be one of id"),
        ("spec.ttl", None, "used with a kind"),
        ("spec.cpus", "ovc.vm", "does not declare its spec"),
        ("spec.ttll", "dns.record", "did you mean 'ttl'?"),
        ("spec.login.password", "dns.record", "unknown field"),
    ],
)
async def test_an_order_that_there_is_not_is_refused_in_words(
    site: ServerHarness, sort: str, kind: str | None, words: str
) -> None:
    answer = await site.get(f"/ns/{NS}/objects", params={"sort": sort, **({"kind": kind} if kind else {})})
    assert answer.status_code in (400, 404)
    assert words in answer.json()["detail"]


@pytest.mark.parametrize("after", ["vm-1", "!!", "WzEsMl0", "W251bGwsIngiLCJ5Il0", "x" * 300])
async def test_a_cursor_of_another_list_is_refused(site: ServerHarness, after: str) -> None:
    for sort in ("state", "since", None):
        if sort is None and len(after) < 250:
            continue
        answer = await site.get(f"/ns/{NS}/objects", params={"after": after, **({"sort": sort} if sort else {})})
        assert (answer.status_code, answer.json()["field"]) == (400, "after")
