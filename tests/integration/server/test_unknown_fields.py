"""Unknown fields of bodies: every route of the native API refuses them, so that none is silently ignored."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server.full_server import open_full_server
from tests.integration.server.server_harness import NS, ServerHarness
from tests.integration.server.test_fuzz_domains import filled

OURS = "/api/v1/"
UNKNOWN = "nonsense"


@pytest.fixture
async def full_server(tmp_path: Path) -> AsyncIterator[ServerHarness]:
    async with open_full_server(tmp_path) as harness:
        yield harness


def routes(description: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield every route of ours that reads a body, with the example of the body."""
    for path, item in description["paths"].items():
        for method in {"post", "put", "patch"} & item.keys() if path.startswith(OURS) else ():
            content = item[method].get("requestBody", {}).get("content", {}).get("application/json")
            if content is not None:
                yield method, path, content.get("examples", {}).get("example", {}).get("value", {})


async def test_every_route_of_ours_refuses_a_field_that_it_does_not_know_and_changes_nothing(
    full_server: ServerHarness,
) -> None:
    description = (await full_server.get("http://test/docs/openapi.json")).json()
    before, found = await full_server.everything(), list(routes(description))
    assert len(found) >= 40
    for method, path, example in found:
        body = {**example, UNKNOWN: 1}
        answer = await full_server.caller("admin").request(method, f"http://test{filled(path, 'x')}", json=body)
        assert (answer.status_code, answer.json().get("field")) == (400, UNKNOWN), (method, path, answer.text)
        assert answer.json()["known"], (method, path)
        assert UNKNOWN not in answer.json()["known"], (method, path)
    assert await full_server.everything() == before


@pytest.mark.parametrize(
    ("path", "body", "field", "nearest"),
    [
        (f"/ns/{NS}/objects", {"id": "a", "kind": "ovc.vm", "lables": {}}, "lables", "labels"),
        (f"/ns/{NS}/plan", {"requests": [{"prioritty": 1}]}, "requests[0].prioritty", "priority"),
        (f"/ns/{NS}/actions/stop", {"selector": {"state": "x"}}, "selector.state", "states"),
        (
            "/mci/connections",
            {"name": "a", "provider": "p", "region": "r", "namespace": "x"},
            "namespace",
            "namespaces",
        ),
        ("/mci/connections", {"name": "a", "provider": "p", "region": "r", "grants": ["x"]}, "grants", None),
        ("/mci/connections/local/grant", {"namespace": ["x"]}, "namespace", "namespaces"),
    ],
)
async def test_an_unknown_field_is_refused_with_the_nearest_known_name(
    full_server: ServerHarness, path: str, body: dict[str, Any], field: str, nearest: str | None
) -> None:
    answer = await full_server.post(path, body)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (400, "bad_input"), answer.text
    assert (problem["field"], problem.get("nearest")) == (field, nearest)
    assert f"did you mean {nearest!r}?" in problem["detail"] or nearest is None
    assert (await full_server.get("/mci/connections")).text.count('"name":"a"') == 0


async def test_of_a_field_that_a_body_has_twice_the_last_one_counts(full_server: ServerHarness) -> None:
    body = b'{"operations": 1, "operations": 2}'
    answer = await full_server.caller("admin").put(f"/quotas/{NS}", content=body)
    assert (answer.status_code, answer.json()["operations"]) == (200, 2), answer.text
