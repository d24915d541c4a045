"""The whole application with all domains: its description, its metrics, and actions on composites."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from litestar.routes import HTTPRoute

from tests.integration.server.full_server import open_full_server
from tests.integration.server.server_harness import NS, ServerHarness
from tests.integration.server.test_rights import routes
from tests.waiting import until

AT = "http://test"
GROUP = {"name": "web", "subGroupSize": 2, "specId": "aws+ap-northeast-2+t3.micro", "imageId": "ubuntu22.04"}
PLAIN = ("/tumblebug", "/spider", "/blazar", "/ns/")
"""Where clients expect errors in a form of their own."""


@pytest.fixture
async def full_server(tmp_path: Path) -> AsyncIterator[ServerHarness]:
    async with open_full_server(tmp_path) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def described(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the description of the whole application, which takes long to make, and its routes."""
    async with open_full_server(tmp_path_factory.mktemp("described")) as opened:
        description: dict[str, Any] = (await opened.get(f"{AT}/docs/openapi.json", "nobody")).json()
        return description, list(routes(opened.app))


@pytest.fixture
def description(described: tuple[dict[str, Any], list[tuple[str, str]]]) -> dict[str, Any]:
    return described[0]


async def metric(harness: ServerHarness, pattern: str) -> bool:
    """Tell whether the metrics have a line that fits and whose number is not zero."""
    text = (await harness.get(f"{AT}/metrics")).text
    return any(float(value) > 0 for value in re.findall(rf"^{pattern} (\S+)$", text, re.MULTILINE))


async def seen(harness: ServerHarness, pattern: str) -> None:
    """Wait until the metrics have such a line."""
    await until(lambda: metric(harness, pattern))


async def made(harness: ServerHarness) -> None:
    """Make an MCI of two VMs."""
    assert (await harness.post(f"{AT}/tumblebug/ns", {"name": NS})).status_code == 200
    body = {"name": "m1", "subGroups": [GROUP]}
    answer = await harness.post(f"{AT}/tumblebug/ns/{NS}/mciDynamic?wait=60", body)
    assert answer.status_code == 200, answer.text


def test_every_route_is_described_with_its_problems_its_texts_and_its_body(
    described: tuple[dict[str, Any], list[tuple[str, str]]],
) -> None:
    description, found = described
    hidden = ("/docs", "/console", "/openapi.json", "/tumblebug/not-offered")
    for method, path in found:
        if path == "/" or path.startswith(hidden):
            continue
        operation = description["paths"][path][method.lower()]
        assert " " in operation["summary"], path
        assert [one["name"] for one in operation.get("parameters", ()) if not one.get("description")] == [], path
        assert operation["description"], path
        assert operation["tags"], path
        if operation.get("security") != []:
            assert {"400", "401", "403", "429", "503"} <= operation["responses"].keys(), path
            problem = operation["responses"]["403"]["content"]
            own = path.startswith(PLAIN)
            assert problem.keys() == {"application/json" if own else "application/problem+json"}, path


async def test_the_arguments_of_every_route_can_be_read(full_server: ServerHarness) -> None:
    """An application leaves that to the first request to a route; a route that cannot be served fails here."""
    listed = [one for one in full_server.app.routes if isinstance(one, HTTPRoute)]
    taken = [takes.expected_reserved_kwargs for one in listed for _, takes in one.route_handler_map.values()]
    assert len(taken) > 300


def test_every_record_that_is_named_is_described_once(description: dict[str, Any]) -> None:
    named = set(re.findall(r"#/components/schemas/([^\"]+)", json.dumps(description)))
    assert named == description["components"]["schemas"].keys()


async def test_what_is_done_to_a_whole_is_done_to_its_parts_and_repeated_only_once(full_server: ServerHarness) -> None:
    await made(full_server)
    suspend = f"/ns/{NS}/objects/m1/actions/suspend"
    first = await full_server.post(f"{suspend}?wait=60", headers={"Idempotency-Key": "once"})
    assert (first.status_code, first.json()["operation"]["status"]) == (200, "succeeded"), first.text
    children = await full_server.get(f"/ns/{NS}/operations/{first.json()['operation']['id']}/children")
    assert [one["action"] for one in children.json()["items"]] == ["suspend", "suspend"]
    again = await full_server.post(suspend, headers={"Idempotency-Key": "once"})
    assert again.json()["operation"]["id"] == first.json()["operation"]["id"]
    assert again.headers["idempotency-replayed"] == "true"
    other = await full_server.post(f"/ns/{NS}/objects/m1/actions/resume", headers={"Idempotency-Key": "once"})
    assert (other.status_code, other.json()["code"]) == (409, "key_reused"), other.text
    refused = await full_server.post(suspend)
    assert refused.status_code == 409


async def test_work_at_providers_and_its_acceptance_are_counted(full_server: ServerHarness) -> None:
    await made(full_server)
    await seen(full_server, r'stateward_provider_calls_total\{call="\w+",provider="aws"\}')
    await seen(full_server, r'stateward_acceptance_seconds_count\{verdict="accepted"\}')
    for _ in range(2):
        await full_server.get(f"{AT}/tumblebug/ns/{NS}/mci/m1?option=status")
    await seen(full_server, r'stateward_provider_calls_saved_total\{provider="aws"\}')
    assert (await full_server.post(f"/ns/{NS}/objects/m1/actions/resume", {})).status_code == 409
    await seen(full_server, r'stateward_acceptance_seconds_count\{verdict="denied"\}')


def test_every_body_has_an_example_that_fits_its_description(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    for path, item in description["paths"].items():
        for method, operation in item.items():
            for content in operation.get("requestBody", {"content": {}})["content"].values():
                record = schemas.get(content["schema"].get("$ref", "").rpartition("/")[2], {})
                examples = [one["value"] for one in content.get("examples", {}).values()] or record.get("examples", [])
                assert examples, f"{method} {path}"
                schema = {**content["schema"], "components": description["components"]}
                for example in examples:
                    Draft202012Validator(schema).validate(example)


async def test_a_dry_run_tells_what_would_be_stored_and_writes_nothing(full_server: ServerHarness) -> None:
    assert (await full_server.post(f"{AT}/tumblebug/ns", {"name": NS})).status_code == 200
    dry = {"X-Stateward-Dry-Run": "1", "X-Request-Id": "asked-1"}
    calls = {
        "systems.system": (f"/api/v1/systems/{NS}", {"name": "billing", "backend": "simulated"}),
        "edge.cloudlet": (f"/api/v1/edge/ns/{NS}/cloudlets", {"name": "oslo"}),
        "ovc.account": (f"/api/v1/ovc/{NS}/accounts", {"name": "acme"}),
        "leases.host": (f"/ns/{NS}/blazar/v1/os-hosts", {"name": "rack-1", "vcpus": 8}),
        "mci.mci": (f"/tumblebug/ns/{NS}/mciDynamic", {"name": "m1", "subGroups": [GROUP]}),
    }
    reader = full_server.engine.store.reader
    before = await reader.last_journal_seq()
    for kind, (path, body) in calls.items():
        answer = await full_server.post(f"{AT}{path}", body, headers=dry)
        assert (answer.status_code, answer.json()["dry_run"][0]["object"]["kind"]) == (200, kind), answer.text
    assert await reader.last_journal_seq() == before
    refused = await full_server.post(f"{AT}/tumblebug/ns", {"name": "other"}, headers=dry)
    assert refused.json()["detail"] == "X-Stateward-Dry-Run: must be left out: this route has no dry run"
    other = {"X-Stateward-Dry-Run": "yes"}
    assert (await full_server.post(f"{AT}{calls['mci.mci'][0]}", {}, headers=other)).status_code == 400
    assert await reader.last_journal_seq() == before
