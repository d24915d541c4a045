"""The files of the page: served to everybody, under a strict policy, and sent again only when they have changed."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from stateward.access import Role, Tokens
from stateward.config import Config
from stateward.plugin.registry import installed
from stateward.server.routes.console_routes import chunk_of, page_files, place_of
from stateward.store.records import Object
from tests.console.sample_objects import SampleObject, object_of
from tests.console.sample_server import open_sample_app


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    config = Config(data=str(tmp_path / "data"), demo=True)
    async with open_sample_app(config, cells=2_500, locks=False) as (app, server):
        text, _ = await Tokens(server.engine).issue("vic", Role.VIEWER, ["demo", "fleet"])
        transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
        headers = {"Authorization": f"Bearer {text}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
            yield client


def made(spec: object) -> Object:
    part = SampleObject("mci.vm", "vm-1", "Running")
    row = object_of("demo", part, 0.0)
    return Object(**{name: getattr(row, name) for name in row.__struct_fields__} | {"spec": json.dumps(spec)})


async def test_the_page_is_for_everybody_and_runs_nothing_inline_or_from_outside(client: httpx.AsyncClient) -> None:
    page = await client.get("/", headers={"Authorization": ""})
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert "<style" not in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text


async def test_every_file_is_served_and_none_outside_the_folder(client: httpx.AsyncClient) -> None:
    for name in page_files(installed()):
        answer = await client.get(f"/console/{name}")
        assert answer.status_code == 200, name
    for name in ("none.js", "../server/console.py", "%2e%2e/server/console.py", "views"):
        answer = await client.get(f"/console/{name}")
        assert answer.status_code == 404, name


async def test_a_file_that_has_not_changed_is_not_sent_again(client: httpx.AsyncClient) -> None:
    first = await client.get("/console/main.js")
    again = await client.get("/console/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert first.headers["cache-control"] == "no-cache"


async def test_a_file_is_sent_compressed_to_those_who_can_read_that(client: httpx.AsyncClient) -> None:
    packed = await client.get("/console/main.js", headers={"Accept-Encoding": "gzip"})
    plain = await client.get("/console/main.js", headers={"Accept-Encoding": "identity"})
    assert (packed.headers["content-encoding"], "content-encoding" in plain.headers) == ("gzip", False)
    assert packed.text == plain.text


async def test_a_caller_is_told_who_they_are(client: httpx.AsyncClient) -> None:
    me = (await client.get("/api/v1/me")).json()
    assert (me["name"], me["role"], me["rights"], me["namespaces"]) == ("vic", "viewer", ["read"], ["demo", "fleet"])
    assert me["domains"] == []  # the server has their objects, and not their own APIs
    assert (await client.get("/api/v1/me", headers={"Authorization": "Bearer x"})).status_code == 401


async def test_the_map_has_every_object_once(client: httpx.AsyncClient) -> None:
    chunks = [json.loads(line) for line in (await client.get("/api/v1/ns/fleet/map")).text.splitlines()]
    cells = [
        (chunk["words"], chunk["cells"][at : at + 5]) for chunk in chunks for at in range(0, len(chunk["cells"]), 5)
    ]
    assert [cell[0] for _, cell in cells] == [f"vm-{number:05}" for number in range(2_500)]
    words, (_, kind, _, place, parent) = cells[0]
    assert (words[kind], words[place], words[parent]) == ("mci.vm", "aws/ap-northeast-2", "")


async def test_the_map_of_a_namespace_that_is_not_opened_is_refused(client: httpx.AsyncClient) -> None:
    assert (await client.get("/api/v1/ns/other/map")).status_code == 403


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({}, ""),
        ({"provider": "aws"}, "aws"),
        ({"provider": "aws", "region": "x"}, "aws/x"),
        ([], ""),
        ({"provider": 7}, ""),
    ],
)
def test_a_place_is_read_from_a_spec_that_has_one(spec: object, place: str) -> None:
    assert place_of(made(spec)) == place


def test_words_are_told_once_in_a_chunk() -> None:
    chunk = chunk_of([made({"provider": "aws"}), made({"provider": "aws"})])
    assert chunk.words == ["mci.vm", "Running", "aws", ""]
    assert chunk.cells == ["vm-1", 0, 1, 2, 3] * 2
