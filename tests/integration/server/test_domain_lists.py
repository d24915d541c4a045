"""Lists of domains that are arrays: their pages are the whole list, each behind the last row of the one before."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.server.full_server import open_full_server
from tests.integration.server.server_harness import NS, ServerHarness

AT = "http://test/api/v1"
EDGE, SYSTEMS = f"{AT}/edge/ns/{NS}", f"{AT}/systems/{NS}"
CLUSTERS = f"{EDGE}/cloudlets/c0/clusterinsts"
APPS = f"{CLUSTERS}/autocluster-{{}}/appinsts"
NAMES = ("c0", "c1", "c2")
LISTS = {
    f"{EDGE}/flavors":      ("id",   "PUT",  f"{EDGE}/flavors/{{}}", {"size": "2c512m"}),
    f"{EDGE}/apps":         ("id",   "PUT",  f"{EDGE}/apps/{{}}",    {"command": "true"}),
    f"{EDGE}/cloudlets":    ("id",   "POST", f"{EDGE}/cloudlets",    {"name": "{}"}),
    f"{EDGE}/clusterinsts": ("id",   "POST", CLUSTERS,               {"name": "{}", "flavor": "c0"}),
    f"{EDGE}/appinsts":     ("id",   "POST", APPS,                   {"app": "{}"}),
    SYSTEMS:                ("id",   "POST", SYSTEMS,                {"name": "system-{}", "backend": "simulated"}),
    f"{SYSTEMS}/-/nodes":   ("name", "POST", f"{SYSTEMS}/-/nodes",   {"name": "node-{}"}),
}  # fmt: skip
"""The field that a page continues behind, and the request that creates a row of the list."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerHarness]:
    """A server with three rows in each list, or more."""
    async with open_full_server(tmp_path, worker=False) as opened:
        for name in NAMES:
            for _, method, path, body in LISTS.values():
                given = {field: value.format(name) for field, value in body.items()}
                answer = await opened.caller("admin").request(method, path.format(name), json=given)
                assert answer.is_success, answer.text
        yield opened


async def read(server: ServerHarness, path: str, **params: Any) -> list[dict[str, Any]]:
    answer = await server.get(path, params=params)
    assert answer.status_code == httpx.codes.OK, answer.text
    rows: list[dict[str, Any]] = answer.json()
    return rows


async def test_pages_of_a_list_are_the_whole_list(server: ServerHarness) -> None:
    for path, (key, *_) in LISTS.items():
        rows = await read(server, path)
        assert len(rows) >= len(NAMES), path
        first = await read(server, path, limit=2)
        assert [*first, *await read(server, path, limit=2, after=first[-1][key])] == rows
        assert len(first) == 2
        assert await read(server, path, after=rows[-1][key]) == []


async def test_a_page_of_a_cloudlets_clusters_has_no_others(server: ServerHarness) -> None:
    answer = await server.post(f"{EDGE}/cloudlets/c1/clusterinsts", {"name": "other"})
    assert answer.is_success, answer.text
    rows = await read(server, f"{EDGE}/clusterinsts", cloudlet="c0", after="c0:c1", limit=5)
    assert [row["id"] for row in rows] == ["c0:c2"]


async def test_a_cloudlets_capacity_is_the_same_on_every_page(server: ServerHarness) -> None:
    whole = await read(server, f"{EDGE}/cloudlets")
    assert [row["capacity"] for row in await read(server, f"{EDGE}/cloudlets", limit=1)] == [whole[0]["capacity"]]
    assert whole[0]["capacity"] != whole[1]["capacity"]


async def test_a_page_of_no_rows_or_too_many_is_refused_with_the_field(server: ServerHarness) -> None:
    for path in LISTS:
        for limit in (0, 1_001):
            answer = await server.get(path, params={"limit": limit})
            assert (answer.status_code, answer.json()["field"]) == (httpx.codes.BAD_REQUEST, "limit"), path
