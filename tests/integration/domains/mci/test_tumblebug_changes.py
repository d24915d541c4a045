"""What Tumblebug's clients read and change beside MCIs: labels, stored keys, settings, rules."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from stateward.domains.mci.model import FirewallRule, security_group_of
from stateward.drivers import CallRefused, CloudResource, Outcome, RefusalReason
from stateward.drivers.security_rules import SecurityRule, wanted_rules
from stateward.drivers.simulated.faults import CALM
from stateward.drivers.simulated.resources import ResourceTable
from stateward.errors import BadInput
from stateward.store.records import to_json
from tests.integration.domains.mci.api_harness import AWS, DEAD, HERE, NS, ApiHarness, group, mci, open_api

on_module_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiHarness]:
    async with open_api(tmp_path_factory.mktemp("changes")) as opened:
        await opened.created(mci("m1", group("g1", 1, label={"tier": "web"}), label={"team": "a"}))
        yield opened


async def uid_of(api: ApiHarness, word: str) -> str:
    """Return the uid of the first object of a type."""
    uid: str = (await api.get(f"/resources/{word}")).json()["results"][0]["uid"]
    return uid


# --- labels ----------------------------------------------------------------------------------------------------------


@on_module_loop
@pytest.mark.parametrize("word", ["mci", "infra", "vm", "vNet", "securityGroup", "sshKey"])
async def test_labels_are_added_replaced_and_removed_and_the_others_stay(api: ApiHarness, word: str) -> None:
    path = f"/label/{word}/{await uid_of(api, word)}"
    before = (await api.get(path)).json()["labels"]
    for value in ("blue", "green"):
        done = await api.put(path, {"labels": {"example.org/color": value, "Size": "1"}})
        assert done.status_code == 200, done.text
    assert (await api.get(path)).json()["labels"] == {**before, "example.org/color": "green", "Size": "1"}
    (found,) = (await api.get(f"/resources/{word}?labelSelector=Size%3D1,example.org/color%3Dgreen")).json()["results"]
    assert path.endswith(found["uid"])
    assert (await api.delete(f"{path}/example.org/color")).status_code == 200
    assert (await api.delete(f"{path}/Size")).status_code == 200
    assert (await api.get(path)).json()["labels"] == before
    gone = await api.delete(f"{path}/Size")
    assert (gone.status_code, "Size" in gone.json()["message"]) == (404, True)


@on_module_loop
async def test_changed_labels_are_shown_with_their_mci_and_vm(api: ApiHarness) -> None:
    for word in ("mci", "vm"):
        await api.put(f"/label/{word}/{await uid_of(api, word)}", {"labels": {"of": word}})
    shown = (await api.get(f"/ns/{NS}/mci/m1")).json()
    assert (shown["label"], shown["vm"][0]["label"]) == ({"team": "a", "of": "mci"}, {"tier": "web", "of": "vm"})
    assert "labels changed" in [one.event for one in await api.engine.history(NS, "m1")]


@on_module_loop
async def test_labels_of_the_system_are_refused_unless_they_stay_the_same(api: ApiHarness) -> None:
    vm, net = f"/label/vm/{await uid_of(api, 'vm')}", f"/label/vNet/{await uid_of(api, 'vNet')}"
    for path, name in ((vm, "sys.id"), (vm, "sys.new"), (vm, "connection"), (net, "shared"), (net, "(protected)")):
        refused = await api.put(path, {"labels": {"fine": "1", name: "x"}})
        assert (refused.status_code, refused.json()["field"]) == (400, f"labels.{name}"), name
        removal = await api.delete(f"{path}/{name}")
        assert (removal.status_code, removal.json()["field"]) == (400, f"labels.{name}"), name
    for path in (vm, net):
        present = (await api.get(path)).json()["labels"]
        assert "fine" not in present
        assert (await api.put(path, {"labels": present})).status_code == 200
        assert (await api.get(path)).json()["labels"] == present


@on_module_loop
async def test_bad_labels_and_unknown_objects_are_refused(api: ApiHarness) -> None:
    path = f"/label/mci/{await uid_of(api, 'mci')}"
    bodies: list[Any] = [{}, {"labels": {}}, {"label": {"a": "b"}}, {"labels": {"a": []}}, {"labels": {"a": "b" * 300}}]
    for body in bodies:
        refused = await api.put(path, body)
        assert (refused.status_code, refused.json()["field"].split(".")[0]) == (400, "labels"), body
    many = await api.put(path, {"labels": {f"n{number}": "" for number in range(100)}})
    assert (many.status_code, many.json()["field"]) == (400, "labels")
    assert (await api.put("/label/mci/nothing", {"labels": {"a": "b"}})).status_code == 404
    assert (await api.put("/label/k8s/nothing", {"labels": {"a": "b"}})).json()["field"] == "labelType"


@on_module_loop
async def test_labels_are_changed_with_the_right_to_act_in_the_namespace(api: ApiHarness) -> None:
    path = f"/label/mci/{await uid_of(api, 'mci')}"
    for who, status in (("viewer", 403), ("outsider", 404), ("nobody", 401), ("operator", 200)):
        assert (await api.put(path, {"labels": {"by": who}}, who)).status_code == status, who
    assert (await api.delete(f"{path}/by", "viewer")).status_code == 403
    assert (await api.delete(f"{path}/by", "operator")).status_code == 200


@on_module_loop
async def test_labels_of_an_mci_wait_for_its_operation_which_may_give_the_former_spec_back(api: ApiHarness) -> None:
    path = f"/label/mci/{await uid_of(api, 'mci')}"
    api.set_profile(DEAD)
    try:
        assert (await api.get(f"/ns/{NS}/control/mci/m1?action=suspend")).status_code == 200
        refused = await api.put(path, {"labels": {"late": "1"}})
        assert (refused.status_code, refused.json()["code"]) == (409, "occupied")
    finally:
        api.set_profile(CALM)
    await api.until("Suspended")
    assert (await api.put(path, {"labels": {"late": "1"}})).status_code == 200
    assert (await api.delete(f"{path}/late")).status_code == 200


# --- keys of the store -----------------------------------------------------------------------------------------------


@on_module_loop
async def test_each_listed_key_leads_to_the_view_of_its_object(api: ApiHarness) -> None:
    await api.post(f"/ns/{NS}/resources/spec", {"connectionName": AWS, "cspSpecName": "t3.micro", "name": "small"})
    await api.post(f"/ns/{NS}/resources/image", {"connectionName": AWS, "cspImageName": "x", "name": "an-image"})
    keys = (await api.get("/objects?key=/")).json()["object"]
    shared, base = f"{NS}-shared-{AWS}", f"/ns/{NS}"
    assert {
        base, f"{base}/mci/m1", f"{base}/mci/m1/subGroup/g1", f"{base}/mci/m1/vm/g1-1", f"{base}/resources/spec/small",
        f"{base}/resources/image/an-image", f"{base}/resources/vNet/{shared}", f"/connection/{AWS}",
        f"{base}/resources/vNet/{shared}/subnet/{shared}",
    } < set(keys)  # fmt: skip
    assert any(key.startswith(f"{base}/resources/sshKey/") for key in keys)
    for key in keys:
        shown = await api.get("/object", params={"key": key})
        assert shown.status_code == 200, key
        name = shown.json().get("id") or shown.json()["configName"]
        assert name == key.rpartition("/")[2]
    of_vm = (await api.get(f"/ns/{NS}/mci/m1/vm/g1-1")).json()
    assert (await api.get(f"/object?key={base}/mci/m1/vm/g1-1")).json() == of_vm


@on_module_loop
async def test_keys_are_listed_by_their_beginning_in_both_names(api: ApiHarness) -> None:
    base = f"/ns/{NS}"
    older, present = [
        (await api.get(f"/objects?key={base}/{word}")).json()["object"] for word in ("mci/m1/", "infra/m1/")
    ]
    assert older == [f"{base}/mci/m1/subGroup/g1", f"{base}/mci/m1/vm/g1-1"]
    assert present == [f"{base}/infra/m1/nodeGroup/g1", f"{base}/infra/m1/node/g1-1"]
    assert (await api.get(f"/object?key={present[0]}")).json() == {
        "resourceType": "nodeGroup", "id": "g1", "name": "g1", "nodeId": ["g1-1"], "nodeGroupSize": 1,
    }  # fmt: skip
    assert (await api.get(f"/object?key={base}/infra/m1")).json()["node"][0]["nodeGroupId"] == "g1"


@on_module_loop
async def test_keys_of_other_namespaces_and_secrets_are_not_shown(api: ApiHarness) -> None:
    assert (await api.get(f"/objects?key=/ns/{NS}", "outsider")).json() == {"object": []}
    assert (await api.get(f"/object?key=/ns/{NS}/mci/m1", "outsider")).status_code == 404
    assert (await api.get("/objects?key=/", "nobody")).status_code == 401
    keys = (await api.get("/objects?key=/", "viewer")).json()["object"]
    shown = [(await api.get("/object", "viewer", params={"key": key})).text for key in keys]
    assert f"/ns/{NS}/mci/m1" in keys
    assert not any("PRIVATE KEY" in text for text in shown)


@on_module_loop
async def test_unknown_and_bad_keys_are_refused(api: ApiHarness) -> None:
    for key in ("/ns/nothing", f"/ns/{NS}/mci/m2", f"/ns/{NS}/resources/color/red", "/nothing", f"/ns/{NS}/mci", "/"):
        refused = await api.get("/object", params={"key": key})
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found"), key
    for path in ("/object", "/objects", "/objects?key=ns", "/object?key="):
        refused = await api.get(path)
        assert (refused.status_code, refused.json()["field"]) == (400, "key"), path


@on_module_loop
async def test_nothing_is_deleted_by_its_key(api: ApiHarness) -> None:
    key = f"/ns/{NS}/mci/m1"
    for path in ("/object", "/objects"):
        refused = await api.delete(f"{path}?key={key}")
        assert (refused.status_code, refused.json()["code"]) == (409, "not_by_key")
        assert (await api.delete(f"{path}?key=/ns/nothing")).status_code == 404
        assert (await api.delete(f"{path}?key={key}", "viewer")).status_code == 403
    assert (await api.get(f"/object?key={key}")).status_code == 200


# --- settings --------------------------------------------------------------------------------------------------------


@on_module_loop
async def test_settings_are_stored_changed_shown_and_removed(api: ApiHarness) -> None:
    assert (await api.get("/config")).json() == {"config": []}
    name = "TB_SPIDER_REST_URL"
    for value in ("http://a/spider", "http://b/spider"):
        stored = (await api.post("/config", {"name": name, "value": value})).json()
        assert (stored["id"], stored["value"], "steers nothing" in stored["message"]) == (name, value, True)
    shown = {"id": name, "name": name, "value": "http://b/spider"}
    assert (await api.get(f"/config/{name}")).json() == shown
    assert (await api.get("/config")).json() == {"config": [shown]}
    assert (await api.get("/objects?key=/config")).json() == {"object": [f"/config/{name}"]}
    assert (await api.get(f"/object?key=/config/{name}")).json() == shown
    await api.post("/config", {"name": "TB_AUTOCONTROL_DURATION_MS", "value": 10000})
    for _ in range(2):
        assert (await api.delete(f"/config/{name}")).status_code == 200
    assert (await api.get(f"/config/{name}")).status_code == 404
    assert (await api.post("/config", {"name": name, "value": "again"})).status_code == 200
    assert (await api.delete("/config")).status_code == 200
    assert (await api.get("/config")).json() == {"config": []}


@on_module_loop
async def test_settings_that_are_secrets_are_refused_and_not_logged(api: ApiHarness) -> None:
    secrets = [("TB_API_PASSWORD", "hunter2", "name"), ("VAULT_TOKEN", "hunter2", "name")]
    secrets += [("TB_SPIDER_REST_URL", "http://spider:hunter2@a/spider", "value")]
    for name, value, field in secrets:
        refused = await api.post("/config", {"name": name, "value": value}, headers={"x-request-id": "a-secret"})
        assert (refused.status_code, refused.json()["field"]) == (400, field), name
        assert "hunter2" not in refused.text
        assert "hunter2" not in (await api.get("/request/a-secret")).text
    for body in ({}, {"name": "a b"}, {"name": "a", "value": {}}, {"name": "a", "value": "x" * 1001}):
        assert (await api.post("/config", body)).status_code == 400, body
    assert (await api.get("/config")).json() == {"config": []}


@on_module_loop
async def test_settings_are_for_administrators_of_everything(api: ApiHarness) -> None:
    for who in ("viewer", "operator"):
        assert (await api.get("/config", who)).status_code == 403
        assert (await api.get("/config/a", who)).status_code == 403
        assert (await api.post("/config", {"name": "a", "value": "b"}, who)).status_code == 403
        assert (await api.delete("/config/a", who)).status_code == 403
        assert (await api.delete("/config", who)).status_code == 403
        assert (await api.get("/objects?key=/config", who)).json() == {"object": []}


# --- rules of security groups ----------------------------------------------------------------------------------------

GROUP = f"/ns/{NS}/resources/securityGroup/w1"


def rule(ports: str = "22", cidr: str = "10.0.0.0/8", protocol: str = "tcp", direction: str = "inbound") -> Any:
    return {"Protocol": protocol, "Ports": ports, "Direction": direction, "CIDR": cidr}


@pytest_asyncio.fixture(loop_scope="module")
async def wall(api: ApiHarness) -> AsyncIterator[ApiHarness]:
    """A security group of its own, with one rule."""
    network = {"name": "v1", "connectionName": AWS, "cidrBlock": "10.0.0.0/16"}
    assert (await api.post(f"/ns/{NS}/resources/vNet", network)).status_code == 201
    body = {"name": "w1", "connectionName": AWS, "vNetId": "v1", "firewallRules": [rule()]}
    assert (await api.post(f"/ns/{NS}/resources/securityGroup", body)).status_code == 200
    yield api
    assert (await api.delete(GROUP)).status_code == 200
    assert (await api.delete(f"/ns/{NS}/resources/vNet/v1")).status_code == 200


async def change(api: ApiHarness, method: str, *rules: Any, who: str = "admin", path: str = GROUP) -> Any:
    url = path if method == "PUT" else f"{path}/rules"
    return await api.client(who).request(method, url, json={"firewallRules": list(rules)})


async def recorded(api: ApiHarness) -> set[SecurityRule]:
    """Return the rules of the record, which must be those of the provider."""
    record = security_group_of(await api.plugin.service.resource(NS, "securityGroup", "w1"))
    (there,) = [one for one in api.plugin.cloud.region(HERE).resources.all() if one.key == record.uid]
    rules = wanted_rules(to_json(record.rules))
    assert wanted_rules(there.facts["rules"]) == rules
    return rules


def ports_of(rules: set[SecurityRule]) -> list[tuple[int, int]]:
    return sorted((one.first, one.last) for one in rules)


@on_module_loop
async def test_rules_are_added_and_removed_at_the_provider_too(wall: ApiHarness) -> None:
    added = await change(
        wall, "POST", rule("22"), rule("80,8000-8080"), rule("53", protocol="UDP", direction="outbound")
    )
    assert added.status_code == 200, added.text
    assert (added.json()["id"], added.json()["success"]) == ("w1", True)
    assert [len(added.json()[when]["firewallRules"]) for when in ("previous", "updated")] == [1, 4]
    assert ports_of(await recorded(wall)) == [(22, 22), (53, 53), (80, 80), (8000, 8080)]
    again = await change(wall, "POST", rule("80"))
    assert (again.status_code, "already" in again.json()["message"]) == (200, True)
    removed = await change(wall, "DELETE", rule("22"), rule("8000-8080"))
    assert removed.status_code == 200, removed.text
    assert ports_of(await recorded(wall)) == [(53, 53), (80, 80)]
    assert "reshape" in [one.event for one in await wall.engine.history(NS, "securityGroup:w1")]


@on_module_loop
async def test_all_rules_are_replaced_and_an_empty_list_closes_the_group(wall: ApiHarness) -> None:
    assert (await change(wall, "PUT", rule("443", "0.0.0.0/0"), rule("", protocol="icmp"))).status_code == 200
    assert ports_of(await recorded(wall)) == [(-1, -1), (443, 443)]
    assert (await change(wall, "PUT")).status_code == 200
    assert await recorded(wall) == set()


@on_module_loop
async def test_bad_rules_are_refused_with_their_field_and_change_nothing(wall: ApiHarness) -> None:
    before = await recorded(wall)
    cases = [
        (rule("70000"), "Ports"), (rule("22-20"), "Ports"), (rule("ssh"), "Ports"), (rule(""), "Ports"),
        (rule(protocol="gre"), "Protocol"), (rule(direction="up"), "Direction"), (rule(cidr="10.0.0.0/33"), "CIDR"),
        (rule(cidr=""), "CIDR"), ({"Protocol": "tcp", "Ports": "22"}, "CIDR"),
    ]  # fmt: skip
    for method in ("POST", "PUT"):
        for bad, field in cases:
            refused = await change(wall, method, rule("23"), bad)
            assert (refused.status_code, refused.json()["field"]) == (400, f"firewallRules[1].{field}"), bad
    for method in ("POST", "PUT", "DELETE"):
        twice = await change(wall, method, rule("23,24"), rule("24"))
        assert (twice.status_code, twice.json()["field"]) == (400, "firewallRules[1]")
        none = await wall.client().request(method, GROUP if method == "PUT" else f"{GROUP}/rules", json={})
        assert (none.status_code, none.json()["field"]) == (400, "firewallRules")
    assert (await change(wall, "POST")).json()["field"] == "firewallRules"
    unknown = await change(wall, "DELETE", rule("22"), rule("99"))
    assert (unknown.status_code, "99" in unknown.json()["message"]) == (404, True)
    assert (await change(wall, "POST", rule(), path=f"/ns/{NS}/resources/securityGroup/w2")).status_code == 404
    assert await recorded(wall) == before


@on_module_loop
async def test_rules_are_changed_with_the_right_to_act_and_not_in_a_group_that_mcis_share(wall: ApiHarness) -> None:
    for who in ("viewer", "outsider"):
        for method in ("POST", "PUT", "DELETE"):
            assert (await change(wall, method, rule("23"), who=who)).status_code == 403
    assert (await change(wall, "POST", rule("23"), who="operator")).status_code == 200
    groups = (await wall.get(f"/ns/{NS}/resources/securityGroup?option=id")).json()["output"]
    shared = next(one for one in groups if one != "w1")
    refused = await change(wall, "POST", rule("23"), path=f"/ns/{NS}/resources/securityGroup/{shared}")
    assert (refused.status_code, refused.json()["code"]) == (409, "shared_rules")


@on_module_loop
async def test_a_change_that_the_provider_refuses_halfway_leaves_the_former_rules(
    wall: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ResourceTable.ensure

    def halfway(table: ResourceTable, resource: CloudResource, number: int) -> Outcome:
        outcome = whole(table, resource, number)
        refused = CallRefused(resource.key, RefusalReason.INVALID, "the quota of rules is reached")
        return refused if "666" in resource.facts.get("rules", "") else outcome

    before = await recorded(wall)
    monkeypatch.setattr(ResourceTable, "ensure", halfway)
    failed = await change(wall, "POST", rule("666", "0.0.0.0/0"))
    assert (failed.status_code, "quota of rules" in failed.json()["message"]) == (409, True)
    assert await recorded(wall) == before
    assert (await wall.get(GROUP)).json()["status"] == "Available"


@on_module_loop
async def test_the_general_api_changes_rules_by_reshape_alone_and_refuses_bad_ones(wall: ApiHarness) -> None:
    act, spec = wall.engine.act, security_group_of(await wall.plugin.service.resource(NS, "securityGroup", "w1"))
    other = msgspec.structs.replace(spec, rules=())
    bad = msgspec.structs.replace(spec, rules=(FirewallRule("70000"),))
    for action, want, field in (("describe", other, "spec.rules"), ("reshape", bad, "spec.rules.ports")):
        with pytest.raises(BadInput) as error:
            await act(NS, "securityGroup:w1", action, spec=want)
        assert error.value.field == field
    with pytest.raises(BadInput):
        await act(NS, "securityGroup:w1", "reshape")
    assert (await wall.engine.run(NS, "securityGroup:w1", "reshape", spec=other)).operation is not None
    assert await recorded(wall) == set()
