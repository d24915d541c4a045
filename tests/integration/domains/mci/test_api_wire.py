"""Wire format: each response has the fields that Tumblebug clients read."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stateward.drivers.simulated.faults import CALM
from tests.integration.domains.mci.api_harness import (
    AWS,
    DEAD,
    MICRO,
    NANO,
    NS,
    UBUNTU,
    ApiHarness,
    group,
    mci,
    open_api,
)

COUNTS = {
    "countTotal", "countCreating", "countRunning", "countFailed", "countSuspended", "countRebooting",
    "countTerminated", "countSuspending", "countResuming", "countTerminating", "countUndefined",
}  # fmt: skip
MCI_INFO = {
    "resourceType", "id", "uid", "name", "status", "statusCount", "targetStatus", "targetAction", "installMonAgent",
    "configureCloudAdaptiveNetwork", "label", "systemLabel", "systemMessage", "description", "vm", "newVmList",
    "postCommand", "postCommandResult",
}  # fmt: skip
VM_INFO = {
    "resourceType", "id", "uid", "cspResourceName", "cspResourceId", "name", "subGroupId", "location", "status",
    "targetStatus", "targetAction", "nativeStatus", "monAgentStatus", "networkAgentStatus", "systemMessage",
    "createdTime", "label", "description", "region", "publicIP", "sshPort", "publicDNS", "privateIP", "privateDNS",
    "rootDiskType", "rootDiskSize", "RootDeviceName", "connectionName", "connectionConfig", "specId", "cspSpecName",
    "spec", "imageId", "cspImageName", "image", "vNetId", "cspVNetId", "subnetId", "cspSubnetId", "networkInterface",
    "securityGroupIds", "dataDiskIds", "sshKeyId", "cspSshKeyId", "vmUserName", "addtionalDetails",
}  # fmt: skip
MCI_STATUS = {
    "id", "name", "status", "statusCount", "targetStatus", "targetAction", "installMonAgent", "masterVmId", "masterIp",
    "masterSSHPort", "label", "systemLabel", "vm",
}  # fmt: skip
VM_STATUS = {
    "id", "cspResourceName", "name", "status", "targetStatus", "targetAction", "nativeStatus", "monAgentStatus",
    "systemMessage", "createdTime", "publicIp", "privateIp", "sshPort", "location",
}  # fmt: skip
ASSOCIATED = {
    "connectionNames", "providerNames", "subGroupIds", "vmIds", "cspVmNames", "cspVmIds", "imageIds", "specIds",
    "vNetIds", "cspVNetIds", "subnetIds", "cspSubnetIds", "securityGroupIds", "dataDiskIds", "sshKeyIds",
}  # fmt: skip
CONNECTION = {
    "configName", "providerName", "driverName", "credentialName", "credentialHolder", "regionZoneInfoName",
    "regionZoneInfo", "regionDetail", "regionRepresentative", "verified",
}  # fmt: skip
REVIEW = {
    "overallStatus", "overallMessage", "creationViable", "estimatedCost", "mciName", "totalVmCount",
    "policyOnPartialFailure", "policyDescription", "policyRecommendation", "vmReviews", "resourceSummary",
    "recommendations",
}  # fmt: skip
VM_REVIEW = {
    "vmName", "subGroupSize", "status", "message", "canCreate", "specValidation", "imageValidation", "connectionName",
    "providerName", "regionName", "estimatedCost", "info", "warnings", "errors",
}  # fmt: skip
SUMMARY = {
    "totalProviders", "totalRegions", "uniqueSpecs", "uniqueImages", "connectionNames", "providerNames", "regionNames",
    "availableSpecs", "unavailableSpecs", "availableImages", "unavailableImages",
}  # fmt: skip
VALIDATION = {"resourceId", "resourceName", "isAvailable", "status", "message", "cspResourceId"}
ACCESS = {"vmId", "publicIP", "privateIP", "sshPort", "vmUserName", "connectionConfig"}
PART = {"resourceType", "id", "uid", "name", "connectionName", "cspResourceName", "cspResourceId", "status",
        "description", "associatedObjectList"}  # fmt: skip
REQUEST = {"startTime", "endTime", "status", "requestInfo", "responseData", "errorResponse"}

M1 = f"/ns/{NS}/mci/m1"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiHarness]:
    async with open_api(tmp_path) as opened:
        await opened.created(
            mci("m1", group("g1", 2), group("g2", 1, specId=MICRO), label="a=b", description="d", accessFrom="*")
        )
        yield opened


def at(value: Any, path: str) -> Any:
    """Return what stands at a path in an answer."""
    for step in filter(None, path.split(".")):
        value = value[int(step)] if step.isdigit() else value[step]
    return value


SHAPES: list[tuple[str, str, set[str]]] = [
    ("/readyz", "", {"message", "ready", "initialized"}),
    ("/connConfig", "connectionconfig.0", CONNECTION),
    (f"/connConfig/{AWS}", "", CONNECTION),
    ("/provider/aws/region", "regions.0", {"regionId", "regionName", "description", "location", "zones"}),
    ("/ns", "ns.0", {"resourceType", "id", "name", "description"}),
    (f"/ns/{NS}", "", {"resourceType", "id", "name", "description"}),
    (f"/ns/{NS}/mci", "mci.0", MCI_INFO),
    (f"/ns/{NS}/mci", "mci.0.vm.0", VM_INFO),
    (f"/ns/{NS}/mci?option=simple", "mci.0", MCI_INFO),
    (f"/ns/{NS}/mci?option=status", "mci.0", MCI_STATUS),
    (M1, "", MCI_INFO),
    (M1, "statusCount", COUNTS),
    (M1, "vm.2", VM_INFO),
    (M1, "vm.0.location", {"display", "latitude", "longitude"}),
    (M1, "vm.0.region", {"region", "zone"}),
    (M1, "vm.0.connectionConfig", CONNECTION),
    (M1, "postCommandResult", {"results"}),
    (M1, "postCommand", {"userName", "command", "timeoutMinutes"}),
    (f"{M1}?option=status", "", {"status"}),
    (f"{M1}?option=status", "status", MCI_STATUS),
    (f"{M1}?option=status", "status.statusCount", COUNTS),
    (f"{M1}?option=status", "status.vm.0", VM_STATUS),
    (f"{M1}?option=accessinfo", "", {"MciId", "MciSubGroupAccessInfo"}),
    (f"{M1}?option=accessinfo", "MciSubGroupAccessInfo.1", {"SubGroupId", "BastionVmId", "MciVmAccessInfo"}),
    (f"{M1}?option=accessinfo", "MciSubGroupAccessInfo.0.MciVmAccessInfo.1", ACCESS),
    (f"{M1}/associatedResources", "", ASSOCIATED),
    (f"{M1}/vm/g1-1", "", VM_INFO),
    (f"{M1}/vm/g1-1?option=status", "", VM_STATUS),
    (f"{M1}/vm/g1-1?option=accessinfo", "", ACCESS),
    (f"{M1}/vm/g1-1?option=idsInDetail", "", {"idInTb", "idInSp", "idInCsp", "nameInCsp"}),
    (f"/ns/{NS}/resources/vNet", "vNet.0", PART | {"cidrBlock", "subnetInfoList"}),
    (f"/ns/{NS}/resources/vNet", "vNet.0.subnetInfoList.0", {"id", "name", "status", "ipv4_CIDR", "zone"}),
    (f"/ns/{NS}/resources/securityGroup", "securityGroup.0", PART | {"vNetId", "firewallRules"}),
    (f"/ns/{NS}/resources/securityGroup", "securityGroup.0.firewallRules.0",
     {"Ports", "Protocol", "Direction", "CIDR"}),
    (f"/ns/{NS}/resources/sshKey", "sshKey.0", PART | {"publicKey"}),
    ("/ns/system/resources/spec", "spec.0", {"id", "name", "connectionName", "cspSpecName", "vCPU", "memoryGiB"}),
    ("/ns/system/resources/image", "image.0", {"id", "name", "connectionName", "cspImageName"}),
    ("/requests", "requests.0", REQUEST),
    ("/requests", "requests.0.requestInfo", {"method", "url", "header", "body"}),
]  # fmt: skip

LISTS: list[tuple[str, list[str]]] = [
    ("/ns?option=id", [NS]),
    (f"/ns/{NS}/mci?option=id", ["m1"]),
    (f"{M1}?option=id", ["g1-1", "g1-2", "g2-1"]),
    (f"{M1}?option=id&filterKey=connectionName&filterVal={AWS}", ["g1-1", "g1-2"]),
    (f"{M1}?option=id&filterKey=SUBGROUPID&filterVal=g2", ["g2-1"]),
    (f"{M1}?option=id&filterKey=nothing&filterVal=g2", []),
    (f"{M1}/subgroup", ["g1", "g2"]),
    (f"{M1}/subgroup/g1", ["g1-1", "g1-2"]),
    (f"/ns/{NS}/resources/vNet?option=id", [f"{NS}-shared-{AWS}", f"{NS}-shared-gcp-asia-northeast3"]),
    (f"/ns/{NS}/resources/spec?option=id", []),
    ("/provider", ["alibaba", "aws", "azure", "gcp", "local", "ncp", "openstack"]),
]


async def test_every_answer_has_the_fields_that_clients_read(api: ApiHarness) -> None:
    for path, where, fields in SHAPES:
        answer = await api.get(path)
        assert answer.status_code == 200, (path, answer.text)
        shown = at(answer.json(), where)
        assert fields <= shown.keys(), (path, where, fields - shown.keys())


async def test_every_list_of_ids_is_under_output(api: ApiHarness) -> None:
    for path, names in LISTS:
        assert (await api.get(path)).json() == {"output": names}, path


async def test_an_mci_is_shown_with_what_its_vms_add_up_to(api: ApiHarness) -> None:
    shown = (await api.get(M1)).json()
    assert shown["status"] == "Running:3 (R:3/3)"
    assert shown["statusCount"] == dict.fromkeys(COUNTS, 0) | {"countTotal": 3, "countRunning": 3}
    assert (shown["targetStatus"], shown["targetAction"]) == ("None", "None")
    assert (shown["label"], shown["description"]) == ({"a": "b"}, "d")


async def test_a_vm_is_shown_with_all_that_it_is_made_of(api: ApiHarness) -> None:
    vm = (await api.get(f"{M1}/vm/g2-1")).json()
    assert (vm["id"], vm["subGroupId"], vm["status"], vm["nativeStatus"]) == ("g2-1", "g2", "Running", "RUNNING")
    assert (vm["specId"], vm["cspSpecName"], vm["imageId"]) == (MICRO, "e2-micro", UBUNTU)
    assert (vm["spec"]["vCPU"], vm["connectionConfig"]["configName"]) == (2, "gcp-asia-northeast3")
    assert vm["region"] == {"region": "asia-northeast3", "zone": ""}
    assert all(vm[name] for name in ("publicIP", "privateIP", "cspResourceId", "cspVNetId", "cspSshKeyId"))
    assert isinstance(vm["sshPort"], int)
    assert len(vm["createdTime"]) == len("2026-11-15 02:57:12")


async def test_the_master_is_the_first_vm(api: ApiHarness) -> None:
    status = await api.status()
    assert (status["masterVmId"], status["masterSSHPort"]) == ("g1-1", 0)
    assert status["masterIp"] == status["vm"][0]["publicIp"]


async def test_targets_are_those_of_the_operation_under_way(api: ApiHarness) -> None:
    api.set_profile(DEAD)
    await api.post(f"{M1}?action=suspend")
    status = await api.status()
    assert (status["targetAction"], status["targetStatus"]) == ("Suspend", "Suspended")
    vm = (await api.get(f"{M1}/vm/g1-1")).json()
    assert (vm["status"], vm["targetAction"], vm["targetStatus"]) == ("Suspending", "Suspend", "Suspended")
    api.set_profile(CALM)


async def test_a_review_has_the_fields_that_clients_read_and_writes_nothing(api: ApiHarness) -> None:
    before = (await api.get(f"/ns/{NS}/mci?option=id")).json()
    answer = await api.post(f"/ns/{NS}/mciDynamicReview", mci("m2", group("g1", 2), group("g2", 1, specId=MICRO)))
    review = answer.json()
    assert answer.status_code == 200
    assert review.keys() >= REVIEW
    assert review["vmReviews"][0].keys() >= VM_REVIEW
    assert review["vmReviews"][0]["specValidation"].keys() >= VALIDATION
    assert review["vmReviews"][0]["imageValidation"].keys() >= VALIDATION
    assert review["resourceSummary"].keys() >= SUMMARY
    assert (review["overallStatus"], review["creationViable"], review["totalVmCount"]) == ("Ready", True, 3)
    assert (await api.get(f"/ns/{NS}/mci?option=id")).json() == before


async def test_a_review_tells_what_cannot_be_made_and_why(api: ApiHarness) -> None:
    body = mci("m2", group("g1", 1), group("g2", 1, imageId="beos"), group("g3", 1, specId="aws+nowhere+t3.nano"))
    review = (await api.post(f"/ns/{NS}/mciDynamicReview", body)).json()
    assert (review["overallStatus"], review["creationViable"]) == ("Error", False)
    assert [one["canCreate"] for one in review["vmReviews"]] == [True, False, False]
    assert "beos" in review["vmReviews"][1]["message"]
    assert review["vmReviews"][1]["specValidation"]["isAvailable"]
    assert not review["vmReviews"][1]["imageValidation"]["isAvailable"]
    assert not review["vmReviews"][2]["specValidation"]["isAvailable"]


async def test_a_review_warns_where_a_provider_cannot_say(api: ApiHarness) -> None:
    api.set_profile(DEAD)
    review = (await api.post(f"/ns/{NS}/mciDynamicReview", mci("m2", group("g1", 1)))).json()
    assert (review["overallStatus"], review["creationViable"]) == ("Warning", True)
    assert "cannot say" in review["vmReviews"][0]["warnings"][0]


async def test_a_review_tells_the_cost_of_all_vms_and_that_a_name_is_taken(api: ApiHarness) -> None:
    review = (await api.post(f"/ns/{NS}/mciDynamicReview", mci("m1", group("g1", 2)))).json()
    assert (review["estimatedCost"], review["vmReviews"][0]["estimatedCost"]) == ("$0.0104/hour", "$0.0104/hour")
    assert not review["creationViable"]
    assert "exists already" in review["overallMessage"]


ERRORS = [
    ("GET", f"/ns/{NS}/mci/m9", 404),
    ("GET", "/ns/nowhere/mci", 404),
    ("GET", f"{M1}/vm/g1-9", 404),
    ("GET", f"{M1}/subgroup/g9", 404),
    ("GET", f"/ns/{NS}/resources/vNet/v9", 404),
    ("GET", f"/ns/{NS}/resources/spec/s9", 404),
    ("GET", "/connConfig/nowhere", 404),
    ("GET", "/provider/nowhere/region", 404),
    ("GET", "/request/nothing", 404),
    ("GET", f"{M1}?option=nonsense", 400),
    ("GET", f"{M1}?option=status&fresh=perhaps", 400),
    ("GET", f"/ns/{NS}/infra?labelSelector=)(", 400),
    ("GET", f"/ns/{NS}/mci?filterKey=a&filterVal='", 400),
    ("GET", f"/ns/{NS}/resources/vNet?FilterKey=id", 400),
    ("GET", "/ns/nowhere/infra?nonsense=1", 404),
    ("POST", f"{M1}", 400),
    ("POST", f"{M1}?action=explode", 400),
    ("POST", f"{M1}/vm/g1-1?action=refine", 400),
    ("POST", f"{M1}?action=suspend&wait=forever", 400),
    ("POST", f"{M1}?action=resume", 409),
    ("POST", f"{M1}?action=continue", 409),
    ("GET", f"/ns/{NS}/control/mci/m1?action=withdraw", 409),
    ("POST", f"{M1}/vm/g1-1?action=resume", 409),
    ("DELETE", M1, 409),
    ("DELETE", f"/ns/{NS}/mci", 409),
    ("DELETE", f"/ns/{NS}", 409),
    ("DELETE", f"/ns/{NS}/resources/vNet/{NS}-shared-{AWS}", 409),
    ("DELETE", f"/ns/{NS}/resources/sshKey", 409),
]


async def test_every_error_has_a_message_and_the_fields_of_all_our_problems(api: ApiHarness) -> None:
    for method, path, code in ERRORS:
        answer = await api.client().request(method, path)
        assert answer.status_code == code, (method, path, answer.text)
        said = answer.json()
        assert said["message"] == said["detail"]
        assert (bool(said["code"]), bool(said["title"])) == (True, True)
        assert "status" not in said, "clients read .status.vm of any answer, and stumble over a number"


POLICY = "policyOnPartialFailure"
CMD, ALL = f"/ns/{NS}/cmd/mci/m1", "/registerCspResources"
# fmt: off
REFUSALS = [
    ("GET",  "/ns//infra",           {},                                       "path",           "a name is missing"),
    ("POST", ALL,                    {"nsId": "../default"},                   None,             "none can have this"),
    ("POST", ALL,                    {"nsId": NS, "mciName": "x"},             "mciName",        "mciNamePrefix"),
    ("POST", CMD,                    {"command": "id", "timeoutMinutes": 1e5}, "timeoutMinutes", "from 0 to 1440"),
    ("POST", CMD,                    {"command": "id", "timeoutMinutes": -1},  "timeoutMinutes", "from 0 to 1440"),
    ("POST", f"/ns/{NS}/mciDynamic", {**mci(), POLICY: "no"},                  POLICY,           "one of continue,"),
]
# fmt: on


async def test_a_refusal_tells_what_is_allowed(api: ApiHarness) -> None:
    for method, path, body, field, text in REFUSALS:
        answer = await api.client().request(method, path, json=body)
        assert (answer.status_code in (400, 404), answer.json().get("field")) == (True, field), answer.text
        assert text in answer.json()["message"], answer.text


async def test_the_vms_of_a_namespace_are_filtered(api: ApiHarness) -> None:
    for value, count in (("g1", 2), ("g9", 0)):
        listed = await api.get(f"/ns/{NS}/resources/node?filterKey=nodeGroupId&filterVal={value}")
        assert len(listed.json()["node"]) == count, listed.text


async def test_specs_are_found_by_the_names_that_their_providers_give_them(api: ApiHarness) -> None:
    spec = (await api.get(f"/ns/{NS}/resources/spec/{NANO}")).json()
    assert (spec["cspSpecName"], spec["connectionName"], spec["costPerHour"]) == ("t3.nano", AWS, 0.0052)
