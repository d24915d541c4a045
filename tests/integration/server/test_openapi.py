"""The API's description is complete: every route, its problems, its examples, and nothing that is not there."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from stateward.schemas import request_bodies
from stateward.server.openapi.examples import EXAMPLES
from tests.integration.engine.record_kinds import RecordWork
from tests.integration.server.server_harness import ServerHarness, open_server
from tests.integration.server.test_rights import RULES, routes

Doc = dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def description() -> Doc:
    async with open_server() as site, site.client({}) as client:
        answer = await client.get("http://test/docs/openapi.json")
    found: Doc = answer.json()
    return found


@pytest.fixture
async def typed_description() -> AsyncIterator[Doc]:
    """The description of a server with a kind that has types."""
    async with open_server(also=[RecordWork().kind()]) as site, site.client({}) as client:
        yield (await client.get("http://test/docs/openapi.json")).json()


async def test_types_of_kinds_are_components_that_the_bodies_name(typed_description: Doc, description: Doc) -> None:
    schemas, untyped = typed_description["components"]["schemas"], description["components"]["schemas"]
    new = {"dns.record.spec", "dns.record.change.args", "dns.record.check.args"}
    assert schemas.keys() == untyped.keys() | new
    spec = schemas["dns.record.spec"]
    assert (spec["title"], spec["properties"]["ttl"]["minimum"]) == ("dns.record.spec", 1)
    assert "initial" not in json.dumps(spec)
    assert schemas["dns.record.change.args"]["examples"] == [{"ttl": 60, "token": "text"}]
    assert schemas["dns.record.check.args"]["examples"] == [{"resolver": "text"}]
    ref = {"$ref": "#/components/schemas/dns.record.spec"}
    for body in ("NewObject", "Ask", "Planned"):
        field = schemas[body]["properties"]["spec"]
        assert field["anyOf"] == [ref, *untyped[body]["properties"]["spec"]["anyOf"]]
        assert field["x-stateward-kinds"] == {"dns.record": ref["$ref"]}
    args = schemas["GroupAsk"]["properties"]["args"]["x-stateward-kinds"]["dns.record"]
    assert sorted(args) == ["change", "check"]
    validator = Draft202012Validator({**schemas["NewObject"], "components": typed_description["components"]})
    validator.validate({"id": "www", "kind": "dns.record", "spec": {"address": "192.0.2.1"}})


NEVER_MISSING = r"(s|/plan|/journal|/stuck|/heal|/prune|\{(ns|tree|lane|grp)\})$"
"""Routes that are about nothing in particular, or about what need not exist."""


def operations(description: Doc) -> dict[str, Doc]:
    return {
        f"{method.upper()} {path}": operation
        for path, item in description["paths"].items()
        for method, operation in item.items()
    }


async def test_every_route_is_described_but_the_pages_themselves(harness: ServerHarness, description: Doc) -> None:
    pages = ("/docs", "/openapi.json")
    wanted = {f"{method} {path}" for method, path in routes(harness.app) if not path.startswith(pages)}
    assert operations(description).keys() == wanted


async def test_the_redirect_to_the_description_says_where_it_is(harness: ServerHarness) -> None:
    answer = await harness.get("http://test/openapi.json", "nobody")
    assert (answer.status_code, answer.headers["location"]) == (308, "docs/openapi.json")
    assert answer.text == "The document is at docs/openapi.json; follow the redirect, as curl -L does.\n"


async def test_every_route_tells_its_right_problems(description: Doc) -> None:
    for name, operation in operations(description).items():
        statuses = set(operation["responses"])
        if RULES[name] in ("everybody", "our page"):
            assert operation["security"] == []
            continue
        assert {"400", "401", "403", "429", "503"} <= statuses, name
        assert "404" in statuses or re.search(NEVER_MISSING, name), name
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                (media_type,) = answer["content"]
                assert media_type == "application/problem+json"
                assert answer["content"][media_type]["examples"]


async def test_every_route_says_what_it_is_for(description: Doc) -> None:
    for name, operation in operations(description).items():
        assert operation["summary"], name
        assert operation["description"], name
        assert operation["tags"], name


async def test_tokens_and_sessions_are_described_in_all_ways(description: Doc) -> None:
    schemes = description["components"]["securitySchemes"]
    assert {name: scheme["type"] for name, scheme in schemes.items()} == {
        "bearer": "http",
        "basic": "http",
        "header": "apiKey",
        "session": "apiKey",
    }
    assert description["security"] == [{name: []} for name in schemes]


async def test_every_record_that_is_named_is_described(description: Doc) -> None:
    named = set(re.findall(r"#/components/schemas/([^\"]+)", json.dumps(description)))
    assert named == set(description["components"]["schemas"])


async def test_a_body_says_that_it_takes_no_other_fields(description: Doc) -> None:
    schemas = description["components"]["schemas"]
    bodies = [
        one for one in vars(request_bodies).values() if isinstance(one, type) and issubclass(one, request_bodies.Body)
    ]
    for body in bodies:
        if body is not request_bodies.Body:
            assert schemas[body.__name__]["additionalProperties"] is False


async def test_every_body_has_an_example_that_is_accepted_as_it_is(description: Doc) -> None:
    for name, operation in operations(description).items():
        if "requestBody" in operation:
            record = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].split("/")[-1]
            assert msgspec.convert(EXAMPLES[record], getattr(request_bodies, record)), name


async def test_what_may_be_left_out_is_said_to_be(description: Doc) -> None:
    act = operations(description)["POST /api/v1/ns/{ns}/objects/{id}/actions/{action}"]
    assert act["requestBody"]["required"] is False
    assert set(act["responses"]) >= {"200", "202", "404", "409", "412", "413"}
    wait = next(one for one in act["parameters"] if one["name"] == "wait")
    assert (wait["required"], wait["schema"]["minimum"], wait["schema"]["maximum"]) == (False, 0, 300)


async def test_answers_in_other_media_types_are_described(description: Doc) -> None:
    found = operations(description)
    assert set(found["GET /api/v1/journal"]["responses"]["200"]["content"]) == {
        "application/json",
        "application/x-ndjson",
        "text/csv",
    }
    diagram = found["GET /api/v1/kinds/{kind}/diagram"]["responses"]["200"]["content"]
    assert set(diagram) == {"image/svg+xml", "text/vnd.mermaid", "text/markdown"}
