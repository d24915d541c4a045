"""Preparation resources over HTTP: networks, security groups, keys, specs and images."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from stateward.domains.mci import model
from stateward.domains.mci.api.request_log_store import all_stored_requests
from stateward.domains.mci.provider.key_pairs import new_pair
from stateward.drivers import CloudResource, ResourceKind
from stateward.drivers.simulated import SimulatedDriver
from stateward.store.records import Object
from tests.integration.domains.mci.api_harness import AWS, HERE, NS, UBUNTU, ApiHarness, group, mci

BASE = f"/ns/{NS}/resources"
SUBNETS = [{"name": "s1", "ipv4_CIDR": "10.0.1.0/24", "zone": "a"}, {"name": "s2", "ipv4_CIDR": "10.0.2.0/24"}]
NETWORK = {"name": "v1", "connectionName": AWS, "cidrBlock": "10.0.0.0/16", "subnetInfoList": SUBNETS}
RULES = [
    {"Ports": "22,900-1000", "Protocol": "TCP", "Direction": "inbound", "CIDR": "0.0.0.0/0"},
    {"FromPort": "1", "ToPort": "65535", "IPProtocol": "udp", "Direction": "inbound"},
]
WALL = {"name": "w1", "connectionName": AWS, "vNetId": "v1", "firewallRules": RULES}
KEY = {"name": "k1", "connectionName": AWS}


async def made(api: ApiHarness, word: str, body: dict[str, Any]) -> Any:
    answer = await api.post(f"{BASE}/{word}", body)
    assert answer.status_code == (201 if word == "vNet" else 200), answer.text
    return answer.json()


async def test_a_network_is_made_with_its_subnets(api: ApiHarness) -> None:
    shown = await made(api, "vNet", NETWORK)
    assert (shown["resourceType"], shown["id"], shown["status"]) == ("vNet", "v1", "Available")
    assert [(one["id"], one["ipv4_CIDR"], one["status"]) for one in shown["subnetInfoList"]] == [
        ("s1", "10.0.1.0/24", "Available"),
        ("s2", "10.0.2.0/24", "Available"),
    ]
    assert shown["cspResourceId"]
    assert (await api.get(f"{BASE}/vNet/v1")).json() == shown
    assert (await api.get(f"{BASE}/vNet/v1/subnet/s1")).json()["zone"] == "a"
    assert (await api.get(f"{BASE}/vNet/v1/subnet?option=id")).json() == {"output": ["s1", "s2"]}
    assert (await api.get(f"{BASE}/vNet/v1/subnet/s9")).status_code == 404


async def test_a_collection_is_deleted_by_the_match_and_nothing_by_a_filter_that_nobody_knows(api: ApiHarness) -> None:
    for name in ("alpha", "alpha-2", "beta"):
        await made(api, "sshKey", {**KEY, "name": name})
        await made(api, "image", {"name": name, "connectionName": AWS, "cspImageName": UBUNTU})
    for word in ("sshKey", "image"):
        for query in ("nonsense=1", "Match=beta", "match=", "matsch=beta"):
            refused = await api.delete(f"{BASE}/{word}?{query}")
            assert (refused.status_code, refused.json()["field"]) == (400, query.split("=")[0]), refused.text
        assert "did you mean 'match'?" in refused.json()["message"]
        assert (await api.delete(f"{BASE}/{word}?match=zzz")).status_code == 200
        assert (await api.delete(f"{BASE}/{word}?match=alpha")).status_code == 200
        assert (await api.get(f"{BASE}/{word}?option=id")).json() == {"output": ["beta"]}
    refused = await api.delete(f"/ns/{NS}/infra?option=terminate&match=m1")
    assert (refused.status_code, refused.json()["field"]) == (400, "match")
    refused = await api.delete(f"/ns/{NS}/sharedResources?dryrun=true")
    assert (refused.status_code, refused.json()["nearest"]) == (400, "dryRun")


async def test_a_subnet_is_added_to_a_network_and_taken_away_again(api: ApiHarness) -> None:
    native = (await made(api, "vNet", NETWORK))["cspResourceId"]
    answer = await api.post(f"{BASE}/vNet/v1/subnet", {"NAME": "s3", "ipv4_cidr": "10.0.3.0/24", "zone": "b"})
    assert (answer.status_code, answer.json()["status"]) == (201, "Available"), answer.text
    assert answer.json()["cspResourceId"]
    shown = (await api.get(f"{BASE}/vNet/v1")).json()
    assert ([one["id"] for one in shown["subnetInfoList"]], shown["cspResourceId"]) == (["s1", "s2", "s3"], native)
    gone = await api.delete(f"{BASE}/vNet/v1/subnet/s1")
    assert gone.json() == {"message": "The subnet s1 has been deleted"}
    assert (await api.get(f"{BASE}/vNet/v1/subnet?option=id")).json() == {"output": ["s2", "s3"]}
    kept = {one.name for one in api.plugin.cloud.region(HERE).resources.all() if one.kind == "subnet"}
    assert kept == {"s2", "s3"}
    assert (await api.delete(f"{BASE}/vNet/v1")).status_code == 200
    assert api.plugin.cloud.region(HERE).resources.all() == []


WRONG_SUBNETS: dict[str, tuple[dict[str, str], int]] = {
    "taken": ({"name": "s1", "ipv4_CIDR": "10.0.9.0/24"}, 409),
    "overlaps": ({"name": "s3", "ipv4_CIDR": "10.0.1.0/25"}, 400),
    "outside": ({"name": "s3", "ipv4_CIDR": "10.1.0.0/24"}, 400),
    "no range": ({"name": "s3", "ipv4_CIDR": "somewhere"}, 400),
    "no name": ({"ipv4_CIDR": "10.0.9.0/24"}, 400),
}


async def test_a_subnet_that_does_not_fit_is_refused_and_changes_nothing(api: ApiHarness) -> None:
    shown = await made(api, "vNet", NETWORK)
    for why, (body, code) in WRONG_SUBNETS.items():
        answer = await api.post(f"{BASE}/vNet/v1/subnet", body)
        assert (answer.status_code, "message" in answer.json()) == (code, True), (why, answer.text)
        assert (await api.get(f"{BASE}/vNet/v1")).json() == shown, why


async def test_a_subnet_of_what_is_not_there_is_not_found(api: ApiHarness) -> None:
    assert (await api.post(f"{BASE}/vNet/v9/subnet", SUBNETS[0])).status_code == 404
    await made(api, "vNet", NETWORK)
    assert (await api.delete(f"{BASE}/vNet/v1/subnet/s9")).status_code == 404
    assert (await api.post(f"{BASE}/vNet/v1/subnet", SUBNETS[0], who="viewer")).status_code == 403


async def test_a_subnet_in_which_a_vm_stands_is_not_taken_away(api: ApiHarness) -> None:
    await made(api, "vNet", NETWORK)
    await made(api, "securityGroup", WALL)
    await made(api, "sshKey", KEY)
    inside = group(vNetId="v1", subnetId="s2", securityGroupIds=["w1"], sshKeyId="k1", connectionName=AWS)
    assert (await api.post(f"/ns/{NS}/mci?wait=60", mci("m1", inside))).status_code == 200
    denied = await api.delete(f"{BASE}/vNet/v1/subnet/s2")
    assert (denied.status_code, "m1.g1-1" in denied.json()["message"]) == (409, True), denied.text
    forced = await api.delete(f"{BASE}/vNet/v1/subnet/s2?action=force")  # the provider does not let it go either
    assert forced.status_code == 409, forced.text
    assert (await api.get(f"{BASE}/vNet/v1/subnet?option=id")).json() == {"output": ["s1", "s2"]}
    assert (await api.get(f"{BASE}/vNet/v1")).json()["status"] == "InUse"
    assert (await api.delete(f"{BASE}/vNet/v1/subnet/s1")).status_code == 200


async def test_a_security_group_has_its_rules_in_the_newer_words(api: ApiHarness) -> None:
    await made(api, "vNet", NETWORK)
    shown = await made(api, "securityGroup", WALL)
    assert shown["vNetId"] == "v1"
    assert shown["firewallRules"] == [
        {"Ports": "22,900-1000", "Protocol": "TCP", "Direction": "inbound", "CIDR": "0.0.0.0/0"},
        {"Ports": "1-65535", "Protocol": "UDP", "Direction": "inbound", "CIDR": "0.0.0.0/0"},
    ]


async def test_a_private_key_is_told_once_and_nowhere_else(api: ApiHarness) -> None:
    answer = await api.post(f"{BASE}/sshKey", KEY, headers={"x-request-id": "mine-1"})
    assert "PRIVATE KEY" in answer.json()["privateKey"]
    assert "PRIVATE KEY" not in str(await all_stored_requests(api.engine))
    for path in (
        f"{BASE}/sshKey",
        f"{BASE}/sshKey/k1",
        f"{BASE}/sshKey?filterKey=name&filterVal=k1",
        "/requests",
        "/request/mine-1",
        f"http://test/api/v1/ns/{NS}/objects?limit=100",
        f"http://test/api/v1/ns/{NS}/objects/sshKey:k1",
        "http://test/api/v1/journal?limit=1000",
    ):
        answer = await api.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert "PRIVATE KEY" not in answer.text, path
        assert '"privateKey":"-' not in answer.text, path


async def test_the_provider_is_given_the_public_half_of_the_key_that_is_told(api: ApiHarness) -> None:
    shown = await made(api, "sshKey", KEY)
    private = load_ssh_private_key(shown["privateKey"].encode(), None)
    assert load_ssh_public_key(shown["publicKey"].encode()) == private.public_key()
    (kept,) = api.plugin.cloud.region(HERE).resources.all()
    assert kept.facts["public_key"] == shown["publicKey"] == (await api.get(f"{BASE}/sshKey/k1")).json()["publicKey"]


async def test_a_key_that_is_brought_along_has_no_private_half_here(api: ApiHarness) -> None:
    public = new_pair("me").public
    shown = await made(api, "sshKey", {**KEY, "publicKey": public, "privateKey": "MINE"})
    assert shown["publicKey"] == public
    assert "MINE" not in str(shown)


async def test_a_name_is_given_once(api: ApiHarness) -> None:
    await made(api, "sshKey", KEY)
    assert (await api.post(f"{BASE}/sshKey", KEY)).status_code == 409


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("vNet", {**NETWORK, "connectionName": "nowhere"}, "connectionName"),
    ("vNet", {**NETWORK, "cidrBlock": "x"}, "cidrBlock"),
    ("vNet", {**NETWORK, "name": "1"}, "name"),
    ("sshKey", {**KEY, "publicKey": "garbage"}, "publicKey"),
    ("sshKey", {**KEY, "publicKey": "ssh-ed25519 AAAA me"}, "publicKey"),
    ("securityGroup", {**WALL, "vNetId": ""}, "vNetId"),
    ("securityGroup", {**WALL, "firewallRules": [{"Ports": "x"}]}, "firewallRules[0].Ports"),
    ("spec", {"name": "x", "connectionName": AWS}, "cspSpecName"),
]


async def test_what_cannot_be_made_names_the_field(api: ApiHarness) -> None:
    for word, body, field in WRONG:
        answer = await api.post(f"{BASE}/{word}", body)
        assert (answer.status_code, answer.json().get("field")) == (400, field), answer.text


async def test_what_is_in_use_says_by_whom_and_is_not_removed(api: ApiHarness) -> None:
    await made(api, "vNet", NETWORK)
    await made(api, "securityGroup", WALL)
    shown = (await api.get(f"{BASE}/vNet/v1")).json()
    assert (shown["status"], shown["associatedObjectList"]) == ("InUse", [f"/ns/{NS}/resources/securityGroup/w1"])
    answer = await api.delete(f"{BASE}/vNet/v1")
    assert (answer.status_code, answer.json()["code"]) == (409, "in_use")
    answer = await api.delete(f"{BASE}/securityGroup/w1")
    assert (answer.status_code, answer.json()) == (200, {"message": "The securityGroup w1 has been deleted"})
    assert (await api.delete(f"{BASE}/vNet/v1?action=refine")).status_code == 400  # it exists: nothing is to be cleared
    assert (await api.delete(f"{BASE}/vNet/v1?action=withsubnets")).status_code == 200
    assert (await api.get(f"{BASE}/vNet/v1")).status_code == 404


async def test_the_users_of_one_resource_are_looked_for_where_it_is(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    vms = (await api.created())["vm"]
    await made(api, "sshKey", {**KEY, "connectionName": "azure-koreacentral"})
    read, vm_of = list[str](), model.vm_of

    def note(record: Object) -> model.VmSpec:
        read.append(record.id)
        return vm_of(record)

    monkeypatch.setattr(model, "vm_of", note)
    assert (await api.get(f"{BASE}/sshKey/k1")).json()["status"] == "Available"
    assert read == []
    used = (await api.get(f"{BASE}/sshKey/{vms[0]['sshKeyId']}")).json()
    assert (used["status"], len(used["associatedObjectList"])) == ("InUse", len(read))


async def test_with_force_the_record_goes_all_the_same(api: ApiHarness) -> None:
    await made(api, "vNet", NETWORK)
    await made(api, "securityGroup", WALL)
    assert (await api.delete(f"{BASE}/vNet/v1?action=force")).status_code == 200
    assert (await api.delete(f"{BASE}/securityGroup/w1?force=true")).status_code == 200


async def test_all_of_a_type_are_removed_as_far_as_nobody_uses_them(api: ApiHarness) -> None:
    used = (await api.created())["vm"][0]["sshKeyId"]
    await made(api, "sshKey", KEY)
    answer = await api.delete(f"{BASE}/sshKey")
    assert answer.status_code == 200
    free, kept = answer.json()["output"]
    assert free == "The sshKey k1 has been deleted"
    assert kept.startswith(f"The sshKey {used} has not been deleted")
    assert (await api.delete(f"{BASE}/sshKey")).status_code == 409


async def test_what_making_mcis_left_behind_is_removed_when_nobody_uses_it(api: ApiHarness) -> None:
    await api.created()
    assert (await api.delete(f"/ns/{NS}/sharedResources")).json()["output"] == []
    await api.delete(f"/ns/{NS}/mci/m1?option=terminate")
    told = (await api.delete(f"/ns/{NS}/sharedResources?dryRun=true")).json()
    assert [one["resourceType"] for one in told["results"]] == ["sshKey", "securityGroup", "vNet"]
    done = (await api.delete(f"/ns/{NS}/sharedResources")).json()
    assert [line.split()[1] for line in done["output"]] == ["sshKey", "securityGroup", "vNet"]
    ids = [one["resourceId"] for one in done["results"]]
    assert ids == [one["resourceId"] for one in told["results"]]  # the preview deleted nothing
    assert (done["total"], done["successCount"], done["failedCount"]) == (3, 3, 0)
    assert (await api.get(f"{BASE}/vNet")).json() == {"vNet": []}


async def test_lists_are_filtered_by_any_field(api: ApiHarness) -> None:
    await made(api, "sshKey", KEY)
    await made(api, "sshKey", {**KEY, "name": "k2", "connectionName": "gcp-asia-northeast3"})
    answer = await api.get(f"{BASE}/sshKey?option=id&filterKey=connectionName&filterVal={AWS}")
    assert answer.json() == {"output": ["k1"]}


# --- specs and images ------------------------------------------------------------------------------------------------


async def test_a_spec_is_registered_used_and_forgotten(api: ApiHarness) -> None:
    body = {"name": "small", "connectionName": AWS, "cspSpecName": "t3.micro", "vCPU": "2", "costPerHour": "0.01"}
    answer = await api.post(f"{BASE}/spec?action=registerWithInfo", body)
    assert answer.status_code == 200, answer.text
    assert (await api.get(f"{BASE}/spec")).json()["spec"] == [answer.json()]
    assert (await api.get(f"{BASE}/spec/small")).json()["cspSpecName"] == "t3.micro"
    shown = await api.created(mci("m1", group("g1", 1, specId="small")))
    assert (shown["vm"][0]["specId"], shown["vm"][0]["cspSpecName"]) == ("small", "t3.micro")
    assert (await api.delete(f"{BASE}/spec/small")).status_code == 409
    await api.delete(f"/ns/{NS}/mci/m1?option=terminate")
    assert (await api.delete(f"{BASE}/spec/small")).json() == {"message": "The spec small has been deleted"}


async def test_an_image_is_registered_and_all_are_forgotten(api: ApiHarness) -> None:
    body = {"name": "mine", "connectionName": AWS, "cspImageName": UBUNTU}
    assert (await api.post(f"{BASE}/image?action=registerWithId", body)).status_code == 200
    assert (await api.post(f"{BASE}/image", body)).status_code == 409
    assert (await api.get(f"{BASE}/image?option=id")).json() == {"output": ["mine"]}
    shown = await api.created(mci("m1", group("g1", 1, imageId="mine")))
    assert shown["vm"][0]["cspImageName"] == UBUNTU
    assert "has not been deleted" in (await api.delete(f"{BASE}/image")).json()["output"][0]
    await api.delete(f"/ns/{NS}/mci/m1?option=terminate")
    done = (await api.delete(f"{BASE}/image")).json()
    assert (done["output"], done["successCount"]) == (["The image mine has been deleted"], 1)


async def test_what_every_server_knows_is_under_system(api: ApiHarness) -> None:
    names = (await api.get("/ns/system/resources/spec?option=id")).json()["output"]
    assert {"aws+ap-northeast-2+t3.nano", "gcp+asia-northeast3+e2-micro"} <= set(names)
    images = (await api.get(f"/ns/system/resources/image?option=id&filterKey=connectionName&filterVal={AWS}")).json()
    assert UBUNTU in images["output"]


async def test_who_may_act_in_one_namespace_reads_what_every_server_knows_and_nothing_else_of_it(
    api: ApiHarness,
) -> None:
    for path in ("spec", "image"):
        answer = await api.get(f"/ns/system/resources/{path}", "operator")
        assert answer.status_code == 200
        name = answer.json()[path][0]["id"]
        assert (await api.get(f"/ns/system/resources/{path}/{name}", "operator")).status_code == 200
        assert (await api.post(f"/ns/system/resources/{path}", {}, "operator")).status_code == 403
        assert (await api.delete(f"/ns/system/resources/{path}/{name}", "operator")).status_code == 403
    assert (await api.get("/ns/system", "operator")).status_code == 403
    assert (await api.get("/ns/system/mci", "operator")).status_code == 403


async def test_a_security_group_on_a_network_that_is_not_there_is_refused_before_anything_is_begun(
    api: ApiHarness,
) -> None:
    await api.post(f"{BASE}/vNet", {"name": "net", "connectionName": "aws-us-east-1"})
    for network, why in (("nowhere", "a vNet of the namespace"), ("net", "it is one of 'aws-us-east-1'")):
        answer = await api.post(f"{BASE}/securityGroup", {"name": "sg", "connectionName": AWS, "vNetId": network})
        assert (answer.status_code, answer.json()["field"]) == (400, "vNetId")
        assert why in answer.json()["message"]
    assert (await api.get(f"{BASE}/securityGroup?option=id")).json() == {"output": []}


async def test_what_is_deleted_by_force_may_remain_at_its_provider_and_that_is_said(api: ApiHarness) -> None:
    made = (await api.post(f"{BASE}/vNet", {"name": "net", "connectionName": AWS})).json()
    said = (await api.delete(f"{BASE}/vNet/net?force=true")).json()["message"]
    assert said == f"The vNet net has been deleted; at its provider there may still be {made['cspResourceId']}"


async def test_a_provider_that_is_not_able_to_does_not_keep_the_shared_resources_of_others(api: ApiHarness) -> None:
    shown = await api.created(mci("m1", group("g1", 1), group("g2", 1, specId="aws+us-east-1+t3.nano")))
    network = next(one["cspVNetId"] for one in shown["vm"] if one["id"] == "g1-1")
    foreign = CloudResource(ResourceKind.SECURITY_GROUP, "foreign", "foreign", within=network)
    await SimulatedDriver(HERE, api.plugin.cloud).ensure(foreign)
    await api.delete(f"/ns/{NS}/mci/m1?option=terminate")
    answer = await api.delete(f"/ns/{NS}/sharedResources")
    left = [line for line in answer.json()["output"] if "has not been deleted" in line]
    assert (answer.status_code, len(answer.json()["output"]), len(left)) == (200, 6, 1)
    assert "'foreign' is in it" in left[0]


async def test_a_path_that_is_not_there_is_told_of_like_any_other_error_of_this_api(api: ApiHarness) -> None:
    for answer, status in ((await api.get(f"{BASE}/nonsense"), 404), (await api.put("/connConfig", {}), 405)):
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
        assert answer.json()["message"] == answer.json()["detail"]
    ours = await api.get("http://test/api/v1/nonsense")
    assert (ours.headers["content-type"], "message" in ours.json()) == ("application/problem+json", False)


async def test_a_namespace_that_is_not_there_is_called_a_namespace(api: ApiHarness) -> None:
    answer = await api.get("/ns/nowhere/mci")
    assert (answer.status_code, answer.json()["message"]) == (
        404,
        "there is no namespace 'nowhere'; create it: stateward mci namespace create nowhere",
    )
