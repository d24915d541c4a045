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


MISSPELT: tuple[tuple[str, dict[str, Any], str, str | None], ...] = (
    (f"/ns/{NS}/objects", {"id": "a", "kind": "ovc.vm", "lables": {}}, "lables", "labels"),
    (f"/ns/{NS}/plan", {"requests": [{"prioritty": 1}]}, "requests[0].prioritty", "priority"),
    (f"/ns/{NS}/actions/stop", {"selector": {"state": "x"}}, "selector.state", "states"),
    ("/mci/connections", {"name": "a", "provider": "p", "region": "r", "namespace": "x"}, "namespace", "namespaces"),
    ("/mci/connections", {"name": "a", "provider": "p", "region": "r", "grants": ["x"]}, "grants", None),
    ("/mci/connections/local/grant", {"namespace": ["x"]}, "namespace", "namespaces"),
)


async def test_an_unknown_field_is_refused_with_the_nearest_known_name(full_server: ServerHarness) -> None:
    for path, body, field, nearest in MISSPELT:
        answer = await full_server.post(path, body)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (400, "bad_input"), answer.text
        assert (problem["field"], problem.get("nearest")) == (field, nearest)
        assert f"did you mean {nearest!r}?" in problem["detail"] or nearest is None
    assert (await full_server.get("/mci/connections")).text.count('"name":"a"') == 0


AT = {"uid": "given", "connection": "aws-ap-northeast-2", "provider": "aws", "region": "ap-northeast-2"}
GROUP = {"name": "g", "size": 1, "spec": "aws+ap-northeast-2+t3.nano", "image": "ubuntu22.04"}
MACHINE = {"spec": GROUP["spec"], "image": GROUP["image"], "csp_spec": "t3.nano", "csp_image": GROUP["image"]}
SUBNET = {"name": "s", "cidr": "10.0.1.0/24"}
PARENTS: dict[str, dict[str, Any]] = {
    "edge.cloudlet": {"id": "oslo"},
    "edge.flavor": {"id": "flavor.small", "spec": {"size": "tiny"}},
    "edge.app": {"id": "app.web", "spec": {"command": "true"}},
    "ovc.account": {"id": "acme", "spec": {"name": "acme"}, "labels": {"name": "acme"}},
}
"""Objects that the objects below need."""

NEW_OBJECTS: dict[str, dict[str, Any]] = {
    "edge.cloudlet": {"id": "rome", "spec": {"missing": "leave"}},
    "edge.flavor": {"id": "flavor.big", "spec": {"size": "tiny"}},
    "edge.app": {"id": "app.shop", "spec": {"command": "true"}},
    "edge.autoscale": {"id": "autoscale.load", "spec": {"cpu": 1.0}},
    "edge.autoprov": {"id": "autoprov.near", "spec": {"cloudlets": ["oslo"]}},
    "edge.clusterinst": {"id": "oslo:bob", "parent": "oslo", "spec": {"flavor": "small", "nodes": 3}},
    "edge.appinst": {"id": "oslo:bob:web", "parent": "oslo", "spec": {}},
    "mci.mci": {"id": "m", "spec": {"name": "m", "uid": "given", "groups": [GROUP]}},
    "mci.vm": {"id": "m.v", "parent": "m", "spec": {**AT, **MACHINE, "name": "v", "mci": "m", "group": "g"}},
    "mci.vnet": {"id": "vNet:net", "spec": {**AT, "name": "net", "subnets": [SUBNET]}},
    "mci.securitygroup": {"id": "securityGroup:sg", "spec": {**AT, "name": "sg", "network": "net"}},
    "mci.sshkey": {"id": "sshKey:key", "spec": {**AT, "name": "key"}},
    "mci.spec": {"id": "spec:x", "spec": {"id": "x", "connection": AT["connection"], "csp_name": "t3.nano"}},
    "mci.image": {"id": "image:x", "spec": {"id": "x", "connection": AT["connection"], "csp_name": "ubuntu22.04"}},
    "ovc.account": {"id": "bank", "spec": {"name": "bank"}, "labels": {"name": "bank"}},
    "ovc.cloudspace": {
        "id": "space",
        "parent": "acme",
        "labels": {"name": "space"},
        "spec": {"name": "space", "account": "acme"},
    },
    "leases.host": {"id": "host-h1", "spec": {"name": "h1"}},
    "leases.property": {"id": "property.colour", "action": "hide", "spec": {}},
    "systems.system": {"id": "web", "spec": {"backend": "simulated"}},
}
"""A new object of each kind that the general API creates."""

PLANNED_ELSEWHERE = {"leases.lease"}
"""Kinds that refuse every spec of the general API: a plan of the domain is a part of the request."""


async def test_every_kind_that_can_be_created_refuses_a_field_of_its_spec_that_it_does_not_know(
    full_server: ServerHarness,
) -> None:
    kinds = {one["kind"] for one in (await full_server.get("/kinds")).json() if one["creatable"]}
    assert kinds == NEW_OBJECTS.keys() | PLANNED_ELSEWHERE
    for kind, parent in PARENTS.items():
        made = await full_server.post(f"/ns/{NS}/objects", {"kind": kind, **parent})
        assert made.status_code == 202, made.text
    asked = [{"kind": kind, "action": "create", **one, "object": one["id"]} for kind, one in NEW_OBJECTS.items()]
    actions = {"ovc.cloudspace": "define", "mci.spec": "register", "mci.image": "register", "leases.host": "register"}
    valid = [{name: one[name] for name in one if name != "id"} for one in asked]
    plan = {"requests": [{**one, "action": actions.get(one["kind"], one["action"])} for one in valid]}
    verdicts = (await full_server.post(f"/ns/{NS}/plan", plan)).json()
    refused = {one["kind"]: verdict["problem"] for one, verdict in zip(valid, verdicts, strict=True)}
    assert not {kind: one for kind, one in refused.items() if one is not None and one["status"] in (400, 422)}
    for kind, wanted in NEW_OBJECTS.items():
        body = {"kind": kind, **wanted, "spec": {**wanted["spec"], UNKNOWN: 1}}
        answer = await full_server.post(f"/ns/{NS}/objects", body)
        assert answer.status_code in (400, 422), (kind, answer.text)
        assert answer.json()["field"] == f"spec.{UNKNOWN}", (kind, answer.text)
        assert (await full_server.get(f"/ns/{NS}/objects/{wanted['id']}")).status_code == 404


async def test_an_unknown_field_of_a_changed_spec_is_refused_with_the_nearest_name_and_in_plans_too(
    full_server: ServerHarness,
) -> None:
    for kind, parent in PARENTS.items():
        await full_server.post(f"/ns/{NS}/objects", {"kind": kind, **parent})
    app, wrong = f"/ns/{NS}/objects/app.web", {"spec": {"command": "true", "cuont": 2}}
    planned = {"requests": [{"object": "app.web", "action": "update", **wrong}]}
    (verdict,) = (await full_server.post(f"/ns/{NS}/plan", planned)).json()
    problems = [
        (await full_server.post(f"{app}/actions/update", wrong)).json(),
        (await full_server.post(f"{app}/actions/update", {"args": {"change": {"cuont": 2}}})).json(),
        verdict["problem"],
    ]
    nested = {**NEW_OBJECTS["mci.vnet"]["spec"], "subnets": [{**SUBNET, "zoen": "a"}]}
    body = {"kind": "mci.vnet", **NEW_OBJECTS["mci.vnet"], "spec": nested}
    problems.append((await full_server.post(f"/ns/{NS}/objects", body)).json())
    told = [(one["status"], one["field"], one["nearest"]) for one in problems]
    assert told == [(422, "spec.cuont", "count")] * 3 + [(422, "spec.subnets[0].zoen", "zone")]


async def test_of_a_field_that_a_body_has_twice_the_last_one_counts(full_server: ServerHarness) -> None:
    body = b'{"operations": 1, "operations": 2}'
    answer = await full_server.caller("admin").put(f"/quotas/{NS}", content=body)
    assert (answer.status_code, answer.json()["operations"]) == (200, 2), answer.text
