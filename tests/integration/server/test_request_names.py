"""Mistyped names in requests: refused with the nearest name, instead of an answer to another question."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stateward.access import Role
from tests.integration.server.full_server import open_full_server
from tests.integration.server.server_harness import NS, ServerHarness
from tests.integration.server.test_fuzz_domains import filled


@pytest.fixture
async def full_server(tmp_path: Path) -> AsyncIterator[ServerHarness]:
    async with open_full_server(tmp_path) as harness:
        yield harness


@pytest.mark.parametrize(
    ("base", "methods", "least"),
    [("/api/v1/", {"get", "post", "put", "delete"}, 100), ("/tumblebug/", {"put", "delete"}, 25)],
)
async def test_every_route_of_ours_and_every_change_refuses_a_query_parameter_that_it_does_not_have(
    full_server: ServerHarness, base: str, methods: set[str], least: int
) -> None:
    description = (await full_server.get("http://test/docs/openapi.json")).json()
    paths = {path: item for path, item in description["paths"].items() if path.startswith(base)}
    routes = [(method, path) for path, item in paths.items() for method in methods & {*item}]
    assert len(routes) >= least
    for method, path in routes:
        answer = await full_server.caller("admin").request(method, f"http://test{filled(path, 'x')}?color=red")
        assert (answer.status_code, answer.json().get("field")) == (400, "color"), (method, path, answer.text)


async def test_every_route_refuses_a_query_parameter_of_one_value_that_is_given_twice(
    full_server: ServerHarness,
) -> None:
    description = (await full_server.get("http://test/docs/openapi.json")).json()
    single = [
        (method, path, one["name"])
        for path, item in description["paths"].items()
        for method, route in item.items()
        for one in route.get("parameters", ())
        if one["in"] == "query" and "array" not in str(one["schema"])
    ]
    assert {path.split("/")[1] for _, path, _ in single} >= {"api", "tumblebug", "blazar"}
    for method, path, name in single:
        url = f"http://test{filled(path, 'x')}?{name}=1&{name}=2"
        answer = await full_server.caller("admin").request(method, url)
        said = (answer.status_code, f"{name}: must be given once" in answer.text)
        assert said == (400, True), (method, url, answer.text)


async def test_a_mistyped_query_parameter_is_answered_with_the_nearest(harness: ServerHarness) -> None:
    refused = await harness.get(f"/ns/{NS}/objects?lable=a=b&limit=1")
    assert (refused.status_code, refused.json()["nearest"]) == (400, "label")
    assert "did you mean 'label'?" in refused.json()["detail"]
    assert "after" in refused.json()["known"]


async def test_the_compatible_apis_take_what_their_originals_take(full_server: ServerHarness) -> None:
    assert (await full_server.get("http://test/tumblebug/readyz?color=red")).status_code == 200
    assert (await full_server.get("http://test/blazar/versions?color=red")).status_code == 300


async def test_a_mistyped_state_is_answered_with_the_nearest(harness: ServerHarness) -> None:
    refused = await harness.get(f"/ns/{NS}/objects?kind=test.pump&state=brokn")
    assert (refused.status_code, refused.json()["field"], refused.json()["nearest"]) == (400, "state", "broken")
    assert "'brokn' is none; did you mean 'broken'?" in refused.json()["detail"]


@pytest.mark.parametrize("path", ["/ns/{}/objects", "/ns/{}/objects/p1", "/ns/{}/counts", "/journal?ns={}"])
async def test_a_namespace_that_nobody_knows_is_answered_with_the_nearest(harness: ServerHarness, path: str) -> None:
    await harness.built("p1", "market")
    refused = await harness.get(path.format("makret"))
    assert (refused.status_code, refused.json()["code"], refused.json()["nearest"]) == (404, "unknown_name", "market")
    assert (await harness.get(path.format("market"))).status_code == 200


async def test_a_namespace_is_known_by_default_by_a_token_by_a_quota_and_by_what_it_held(
    harness: ServerHarness,
) -> None:
    await harness.tokens.issue("tom", Role.VIEWER, ["by-token"])
    await harness.put("/quotas/by-quota", {"objects": {}, "operations": 1})
    await harness.built("p1", "formerly")
    await harness.ended(await harness.post("/ns/formerly/objects/p1/actions/scrap"), "formerly")
    for ns in ("default", "by-token", "by-quota", "formerly"):
        assert (await harness.get(f"/ns/{ns}/objects?kind=test.station")).json()["items"] == [], ns


async def test_a_registered_namespace_is_known(full_server: ServerHarness) -> None:
    path = "http://test/api/v1/ns/garden/objects"
    assert (await full_server.get(path)).status_code == 404
    await full_server.post("http://test/tumblebug/ns", {"name": "garden"})
    assert (await full_server.get(path)).json()["items"] == []


async def test_an_unknown_namespace_does_not_disclose_those_of_others(harness: ServerHarness) -> None:
    await harness.built("p1", "bank")
    refused = await harness.get("/ns/bnak/objects", "viewer")
    assert refused.status_code == 403
    mistyped = await harness.get("/journal?ns=bnak", "viewer")
    assert "bank" not in mistyped.text


async def test_a_mistyped_label_is_answered_with_the_nearest_of_the_readable_ones(harness: ServerHarness) -> None:
    await harness.built("p1", labels={"region": "eu"})
    await harness.built("p2", "bank", labels={"regnum": "x"})
    for path in ("objects", "counts"):
        refused = await harness.get(f"/ns/{NS}/{path}?label=regoin=eu", "viewer")
        assert (refused.status_code, refused.json()["field"]) == (400, "label")
        assert (refused.json()["nearest"], refused.json()["known"]) == ("region", ["region"])
    assert (await harness.get(f"/ns/{NS}/objects?label=regnum=x")).json()["items"] == []  # known in another namespace
    assert (await harness.get(f"/ns/{NS}/objects?label=region=us")).json()["items"] == []
    group = await harness.post(f"/ns/{NS}/actions/mend", {"selector": {"labels": {"regoin": "eu"}}})
    assert (group.status_code, group.json()["field"]) == (400, "selector.labels")
