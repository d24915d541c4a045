"""What Tumblebug's clients ask before they create something: specs, images, regions, reviews, history, labels."""

from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from stateward.domains.mci import address_ranges
from stateward.domains.mci.api.routes.history_routes import CreationAttempt, risk_of
from stateward.domains.mci.api.routes.label_routes import parse_selector
from stateward.domains.mci.model import CloudConnection, SpecRecord
from stateward.domains.mci.settings import MciSettings
from stateward.domains.mci.spec_choice import Condition, Priority, SpecOffer, choose, distance_km
from stateward.errors import BadInput
from tests.integration.domains.mci.api_harness import AWS, NANO, NS, UBUNTU, ApiHarness, group, mci, open_api

on_module_loop = pytest.mark.asyncio(loop_scope="module")

SEOUL, TOKYO = (37.57, 126.98), (35.68, 139.69)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiHarness]:
    async with open_api(tmp_path_factory.mktemp("choice")) as opened:
        await opened.created(mci("m1", group("g1", 1, label={"tier": "web"}), label={"team": "a"}))
        yield opened


def policy(metric: str, *conditions: tuple[str, str]) -> dict[str, Any]:
    return {"metric": metric, "condition": [{"operator": sign, "operand": value} for sign, value in conditions]}


# --- the choice of specs ---------------------------------------------------------------------------------------------


@on_module_loop
async def test_specs_that_fit_come_with_the_cheapest_first(api: ApiHarness) -> None:
    wanted = {"filter": {"policy": [policy("vCPU", (">=", "4")), policy("memoryGiB", ("<=", "16"))]}, "limit": "3"}
    found = (await api.post("/recommendSpec", wanted)).json()
    assert [one["orderInFilteredResult"] for one in found] == [1, 2, 3]
    assert all(one["vCPU"] >= 4 and one["memoryGiB"] <= 16 for one in found)
    assert [one["costPerHour"] for one in found] == sorted(one["costPerHour"] for one in found)


@on_module_loop
async def test_specs_are_chosen_by_texts_and_by_their_gpus(api: ApiHarness) -> None:
    wanted = {"filter": {"policy": [policy("providerName", ("==", "aws")), policy("acceleratorCount", (">=", "1"))]}}
    found = (await api.post("/recommendSpec", wanted)).json()
    assert {one["cspSpecName"] for one in found} == {"g4dn.xlarge"}
    assert {(one["acceleratorType"], one["acceleratorModel"]) for one in found} == {("gpu", "NVIDIA T4")}


@pytest.mark.parametrize(
    ("metric", "key", "places", "first"),
    [
        ("location", "coordinateClose", ["37.5/127.0"], {"ap-northeast-2", "koreacentral", "asia-northeast3", "kr"}),
        ("location", "coordinateClose", ["50.0/8.0"], {"eu-central-1"}),
        ("latency", "latencyMinimal", ["aws+us-east-1"], {"us-east-1", "eastus"}),
    ],
)
@on_module_loop
async def test_the_nearest_region_comes_first(
    api: ApiHarness, metric: str, key: str, places: list[str], first: set[str]
) -> None:
    order = {"policy": [{"metric": metric, "parameter": [{"key": key, "val": places}], "weight": "1.0"}]}
    found = (await api.post("/recommendSpec", {"priority": order, "limit": 1})).json()
    assert found[0]["regionName"] in first


@on_module_loop
async def test_a_place_that_is_not_named_stands_for_the_cheapest(api: ApiHarness) -> None:
    cheapest = (await api.post("/recommendSpec", {"limit": 3})).json()
    assert (
        await api.post("/recommendSpec", {"priority": {"policy": [{"metric": "location"}]}, "limit": 3})
    ).json() == cheapest


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"filter": {"policy": [policy("color", ("==", "1"))]}}, "filter.policy[0].metric"),
    ({"filter": {"policy": [policy("vCPU", ("~", "1"))]}}, "filter.policy[0].condition[0].operator"),
    ({"filter": {"policy": [policy("vCPU", (">=", "many"))]}}, "filter.policy[0].condition[0].operand"),
    ({"priority": {"policy": [{"metric": "taste"}]}}, "priority.policy[0].metric"),
    ({"priority": {"policy": [{"metric": "location", "parameter": [{}]}]}}, "priority.policy[0].parameter[0].key"),
    (
        {"priority": {"policy": [{"metric": "location", "parameter": [{"key": "coordinateClose", "val": ["91/0"]}]}]}},
        "priority.policy[0].parameter[0].val[0]",
    ),
    (
        {"priority": {"policy": [{"metric": "latency", "parameter": [{"key": "latencyMinimal", "val": ["moon"]}]}]}},
        "priority.policy[0].parameter[0].val[0]",
    ),
    ({"limit": "-1"}, "limit"),
]


@on_module_loop
async def test_a_wrong_choice_names_its_field(api: ApiHarness) -> None:
    for body, field in WRONG:
        refused = await api.post("/recommendSpec", body)
        assert (refused.status_code, refused.json().get("field")) == (400, field), body


@on_module_loop
async def test_the_options_have_what_the_choice_reads(api: ApiHarness) -> None:
    shown = (await api.get("/recommendSpecOptions")).json()
    assert "vCPU" in shown["filter"]["availableMetrics"]
    assert set(shown["priority"]["availableMetrics"]) == {"cost", "performance", "location", "latency", "random"}
    assert "aws" in shown["filter"]["availableValues"]["providerName"]


def offer(name: str, cost: float, vcpu: int = 1, at: tuple[float, float] | None = SEOUL) -> SpecOffer:
    return SpecOffer(SpecRecord(name, "c", name, vcpu, 1.0, cost), CloudConnection("c", "p", "r"), at)


def chosen(offers: list[SpecOffer], *priorities: Priority, limit: int = 0) -> list[str]:
    return [one.spec.id for one in choose(offers, (), priorities, limit, Random(1))]


def test_what_is_not_known_comes_last() -> None:
    assert chosen([offer("free", 0.0), offer("dear", 9.0), offer("cheap", 1.0)]) == ["cheap", "dear", "free"]
    near = Priority("location", 1.0, "coordinateClose", (TOKYO,))
    assert chosen([offer("nowhere", 1.0, at=None), offer("a", 1.0)], near) == ["a", "nowhere"]


def test_priorities_count_by_their_weights() -> None:
    offers = [offer("slow", 1.0, 1), offer("fast", 2.0, 8)]
    assert chosen(offers, Priority("cost", 0.9), Priority("performance", 0.1)) == ["slow", "fast"]
    assert chosen(offers, Priority("cost", 0.1), Priority("performance", 0.9)) == ["fast", "slow"]
    assert chosen(offers, Priority("cost"), limit=1) == ["slow"]


def test_a_fair_place_is_equally_far_from_all() -> None:
    fair = Priority("location", 1.0, "coordinateFair", ((0.0, 0.0), (0.0, 20.0)))
    assert chosen([offer("left", 1.0, at=(0.0, 1.0)), offer("middle", 1.0, at=(5.0, 10.0))], fair) == ["middle", "left"]


def test_distances_are_great_circles() -> None:
    assert distance_km(SEOUL, TOKYO) == pytest.approx(1160, rel=0.02)
    assert distance_km((0.0, 179.0), (0.0, -179.0)) == pytest.approx(222, rel=0.02)


@pytest.mark.parametrize(("sign", "fits"), [(">=", True), ("<=", True), ("==", True), (">", False), ("<", False)])
def test_numbers_are_compared(sign: str, *, fits: bool) -> None:
    assert Condition("vCPU", sign, 2.0).holds(offer("a", 1.0, 2)) is fits


@on_module_loop
async def test_specs_within_ranges(api: ApiHarness) -> None:
    wanted = {"vCPU": {"min": 4, "max": 4}, "providerName": "gcp", "regionName": "us-central1", "limit": 2}
    for path in ("filterSpecsByRange", "filterSpecs"):
        found = (await api.post(f"/ns/system/resources/{path}", wanted)).json()["spec"]
        assert [(one["vCPU"], one["providerName"]) for one in found] == [(4, "gcp")] * 2
    own = {"name": "own", "connectionName": AWS, "cspSpecName": "x9", "vCPU": 3, "architecture": "arm64"}
    assert (await api.post(f"/ns/{NS}/resources/spec", own)).status_code == 200
    found = (await api.post(f"/ns/{NS}/resources/filterSpecsByRange", {"architecture": "arm64"})).json()["spec"]
    assert [one["id"] for one in found] == ["own"]


# --- images, catalogues, regions -------------------------------------------------------------------------------------


@on_module_loop
async def test_images_are_found_for_a_spec_and_a_system(api: ApiHarness) -> None:
    wanted = {"matchedSpecId": NANO, "osType": "ubuntu 22.04", "maxResults": 1}
    found = (await api.post("/ns/system/resources/searchImage", wanted)).json()
    assert (found["imageCount"], found["imageList"][0]["osType"]) == (1, "Ubuntu 22.04")
    assert found["imageList"][0]["regionList"] == ["ap-northeast-2"]
    assert (await api.post("/ns/system/resources/searchImage", {"isGPUImage": True})).json()["imageCount"] == 0
    refused = await api.post("/ns/system/resources/searchImage", {"matchedSpecId": "no+such+spec"})
    assert (refused.status_code, refused.json()["field"]) == (400, "matchedSpecId")
    assert "Ubuntu 22.04" in (await api.get("/ns/system/resources/searchImageOptions")).json()["osType"]


@on_module_loop
async def test_the_catalogue_of_a_connection_is_looked_up(api: ApiHarness) -> None:
    at = {"connectionName": AWS}
    specs = (await api.post("/lookupSpecs", at)).json()["vmspec"]
    one = (await api.post("/lookupSpec", {**at, "cspSpecName": "t3.nano"})).json()
    assert one in specs
    assert (one["VCpu"]["Count"], one["MemSizeMib"]) == ("2", "512")
    images = (await api.post("/lookupImages", at)).json()["image"]
    assert (await api.post("/lookupImage", {**at, "cspImageName": UBUNTU})).json() in images
    for path, body, field in (
        ("/lookupSpecs", {"connectionName": "nowhere"}, "connectionName"),
        ("/lookupSpec", {**at, "cspSpecName": "t99"}, "cspSpecName"),
        ("/lookupImage", {**at, "cspImageName": "dos"}, "cspImageName"),
    ):
        refused = await api.post(path, body)
        assert (refused.status_code, refused.json()["field"]) == (400, field)


@on_module_loop
async def test_there_is_nothing_to_fetch(api: ApiHarness) -> None:
    for path in ("/fetchSpecs", "/fetchImages", "/fetchImagesAsync", "/fetchPrice", f"/ns/{NS}/resources/fetchSpecs"):
        assert "specs and" in (await api.post(path, {})).json()["message"]
    assert (await api.get("/fetchImagesResult")).json()["registeredImages"] > 0


@on_module_loop
async def test_regions_have_their_locations(api: ApiHarness) -> None:
    shown = (await api.get("/provider/aws/region/us-east-1")).json()
    assert (shown["regionId"], shown["location"]["display"]) == ("us-east-1", "Virginia")
    assert (await api.get("/provider/aws/region/moon")).status_code == 400
    regions = (await api.get("/region")).json()["region"]
    assert regions == (await api.get("/regionFromCsp")).json()["region"]
    assert (await api.get(f"/region/{AWS}")).json() in regions
    assert "us-east-1" in (await api.get("/cloudInfo")).json()["csps"]["aws"]["regions"]


# --- reviews ---------------------------------------------------------------------------------------------------------


@on_module_loop
async def test_specs_are_checked_before_a_request(api: ApiHarness) -> None:
    both = (await api.post("/mciDynamicCheckRequest", {"specId": [NANO, "nothing"]})).json()["reqCheck"]
    assert both[0]["connectionConfigCandidates"] == [AWS]
    assert both[0]["spec"]["id"] == NANO
    assert UBUNTU in [one["id"] for one in both[0]["image"]]
    assert (both[1]["connectionConfigCandidates"], bool(both[1]["systemMessage"])) == ([], True)
    assert (await api.post("/infraDynamicCheckRequest", {"specIds": [NANO]})).status_code == 200
    assert (await api.post("/mciDynamicCheckRequest", {})).json()["field"] == "specId"


@on_module_loop
async def test_a_subgroup_is_reviewed_and_nothing_is_written(api: ApiHarness) -> None:
    shown = (await api.post(f"/ns/{NS}/mci/m1/subGroupDynamicReview", group("g2", 2))).json()
    assert (shown["canCreate"], shown["estimatedCost"], shown["subGroupSize"]) == (True, "$0.0104/hour", 2)
    newer = (await api.post(f"/ns/{NS}/infra/m1/nodeGroupDynamicReview", group("g2", 2))).json()
    assert (newer["nodeGroupSize"], newer["nodeName"]) == (2, "g2")
    assert (await api.post(f"/ns/{NS}/mci/m1/subGroupDynamicReview", group("g1"))).json()["field"] == "name"
    assert (await api.get(f"/ns/{NS}/mci/m1/subgroup")).json() == {"output": ["g1"]}


@on_module_loop
async def test_a_pair_of_spec_and_image_is_reviewed(api: ApiHarness) -> None:
    shown = (await api.post("/specImagePairReview", {"specId": NANO, "imageId": UBUNTU})).json()
    assert (shown["isValid"], shown["status"], shown["connectionName"]) == (True, "OK", AWS)
    wrong = (await api.post("/specImagePairReview", {"specId": NANO, "imageId": "dos"})).json()
    assert (wrong["isValid"], wrong["status"], bool(wrong["errors"])) == (False, "Error", True)
    assert (await api.post("/specImagePairReview", {"specId": NANO})).json()["field"] == "imageId"


@on_module_loop
async def test_the_review_says_who_may_connect(api: ApiHarness) -> None:
    for given, text, status in (
        ([], "let nobody in", "Ready"),
        (None, "from where the setting mci_access_from says", "Ready"),
        (["203.0.113.7"], "SSH from 203.0.113.7/32", "Ready"),
        (["0.0.0.0/0"], "SSH to its VMs is open to the whole Internet", "Warning"),
        ("*", "every port of its VMs is open to the whole Internet", "Warning"),
    ):
        shown = (await api.post(f"/ns/{NS}/mciDynamicReview", mci("new", accessFrom=given))).json()
        assert text in shown["recommendations"][0]
        assert shown["overallStatus"] == status
    refused = await api.post(f"/ns/{NS}/mciDynamic", mci("new", accessFrom=["somewhere"]))
    assert (refused.status_code, refused.json()["field"]) == (400, "accessFrom[0]")


async def rules_of(api: ApiHarness, name: str) -> list[tuple[str, str, str]]:
    (id_,) = (await api.get(f"/ns/{NS}/mci/{name}")).json()["vm"][0]["securityGroupIds"]
    shown = (await api.get(f"/ns/{NS}/resources/securityGroup/{id_}")).json()["firewallRules"]
    return [(one["Ports"], one["Protocol"], one["CIDR"]) for one in shown]


@on_module_loop
async def test_a_shared_security_group_lets_in_only_what_the_caller_says(api: ApiHarness) -> None:
    assert await rules_of(api, "m1") == []
    await api.created(mci("ssh", group("g1", 1), accessFrom=["203.0.113.0/24"]))
    await api.created(mci("open", group("g1", 1), accessFrom="*"))
    assert await rules_of(api, "ssh") == [("22", "TCP", "203.0.113.0/24")]
    assert ("1-65535", "TCP", "0.0.0.0/0") in await rules_of(api, "open")
    assert await rules_of(api, "m1") == []


async def test_an_mci_of_a_client_that_does_not_know_access_from_lets_in_ssh_from_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address_ranges, "own_address", lambda: "203.0.113.7")
    async with open_api(tmp_path, settings=MciSettings()) as opened:
        await opened.created(mci("new", group("g1", 1)))
        await opened.created(mci("closed", group("g1", 1), accessFrom=[]))
        assert await rules_of(opened, "new") == [("22", "TCP", "203.0.113.7/32")]
        assert await rules_of(opened, "closed") == []


@pytest.mark.parametrize(
    ("setting", "ranges"),
    [
        ("", ()),
        ("server", ("203.0.113.7/32",)),
        ("server, 198.51.100.0/24", ("198.51.100.0/24", "203.0.113.7/32")),
    ],
)
def test_the_default_of_access_from_is_a_setting(
    setting: str, ranges: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address_ranges, "own_address", lambda: "203.0.113.7")
    assert address_ranges.default_access(setting) == ranges
    with pytest.raises(BadInput, match="mci_access_from"):
        address_ranges.default_access("somewhere")


# --- history, resources, labels --------------------------------------------------------------------------------------


@on_module_loop
async def test_the_history_of_a_spec_has_its_creations(api: ApiHarness) -> None:
    log = (await api.get(f"/provisioning/log/{NANO}")).json()
    assert (log["specId"], log["failureCount"], log["connectionName"]) == (NANO, 0, AWS)
    assert log["successCount"] == len(log["successTimestamps"]) > 0
    risk = (await api.get(f"/provisioning/risk/{NANO}?cspImageName={UBUNTU}")).json()
    assert (risk["riskLevel"], risk["analysis"]["imageRisk"]["hasSucceededWithSpec"]) == ("low", True)
    detailed = (await api.get(f"/provisioning/risk/detailed?specId={NANO}&cspImageName=dos")).json()
    assert detailed["imageRisk"]["isNewCombination"]
    assert (await api.get("/provisioning/risk/detailed")).json()["field"] == "specId"
    assert (await api.get(f"/provisioning/log/{NANO}", "outsider")).json()["successCount"] == 0


def test_the_risk_follows_from_the_share_of_failures() -> None:
    def attempts(good: int, bad: int) -> list[CreationAttempt]:
        return [CreationAttempt("s", "i", "c", "p", "r", one < good, "", 0.0) for one in range(good + bad)]

    assert [risk_of(attempts(*one)).level for one in ((0, 0), (9, 1), (1, 1), (1, 9))] == [
        "low",
        "low",
        "medium",
        "high",
    ]


@on_module_loop
async def test_a_resource_is_checked(api: ApiHarness) -> None:
    shared = f"{NS}-shared-{AWS}"
    assert (await api.get(f"/ns/{NS}/checkResource/vNet/{shared}")).json() == {"exists": True}
    answer = await api.get(f"/ns/{NS}/checkResource/vNet/nothing")
    assert (answer.status_code, answer.json()) == (200, {"exists": False})
    assert (await api.get("/ns/nothing/checkResource/vNet/nothing")).status_code == 404
    assert (await api.get(f"/ns/{NS}/checkResource/color/red")).json()["field"] == "resourceType"


@on_module_loop
async def test_records_are_compared_with_the_provider(api: ApiHarness) -> None:
    for word in ("vNet", "securityGroup", "sshKey", "vm"):
        shown = (await api.post("/inspectResources", {"connectionName": AWS, "resourceType": word})).json()
        assert shown["resourceOverview"]["onTumblebug"] == shown["resourceOverview"]["onCspTotal"] > 0, word
        assert (shown["resourceOverview"]["onCspOnly"], shown["systemMessage"]) == (0, "")
    assert (await api.get("/inspectResourcesOverview")).json()["tumblebugOverview"]["vNet"] > 0
    assert (await api.post("/inspectResources", {"connectionName": AWS}, "operator")).status_code == 403
    assert (await api.post("/inspectResources", {"connectionName": AWS})).json()["field"] == "resourceType"


@on_module_loop
async def test_objects_of_another_connection_to_the_same_region_are_ours(api: ApiHarness) -> None:
    connections = "http://test/api/v1/mci/connections"
    second = {"name": "aws-second", "provider": "aws", "region": "ap-northeast-2"}
    assert (await api.post(connections, second)).status_code == 201
    for word in ("vNet", "securityGroup", "sshKey", "vm"):
        seen = (await api.post("/inspectResources", {"connectionName": "aws-second", "resourceType": word})).json()
        counts = seen["resourceOverview"]
        assert (counts["onTumblebug"], counts["onCspOnly"], counts["onCspTotal"] > 0) == (0, 0, True), word
    assert set((await api.get("/inspectResourcesOverview")).json()["cspOnlyOverview"].values()) == {0}
    assert (await api.delete(f"{connections}/aws-second")).status_code < 300


@on_module_loop
async def test_objects_are_found_by_their_labels(api: ApiHarness) -> None:
    (found,) = (await api.get("/resources/mci?labelSelector=team%3Da")).json()["results"]
    assert found["id"] == "m1"
    assert (await api.get(f"/label/mci/{found['uid']}")).json()["labels"]["team"] == "a"
    (vm,) = (await api.get("/resources/node?labelSelector=tier%3Dweb")).json()["results"]
    assert vm["id"] == "g1-1"
    assert (await api.get("/resources/vm?labelSelector=tier%3Dweb", "outsider")).json() == {"results": []}
    by_older, by_present = [(await api.get(f"/label/{word}/{vm['uid']}")).json() for word in ("vm", "node")]
    assert (by_older["resourceKey"], by_older["labels"]["sys.labelType"]) == (f"/ns/{NS}/mci/m1/vm/g1-1", "vm")
    assert (by_present["resourceKey"], by_present["labels"]["sys.labelType"]) == (
        f"/ns/{NS}/infra/m1/node/g1-1",
        "node",
    )
    by_type = (await api.get("/resources/node?labelSelector=sys.labelType%3Dnode")).json()["results"]
    assert {(one["resourceType"], one["id"]) for one in by_type} == {("node", "g1-1")}
    (by_set,) = (await api.get("/resources/vm?labelSelector=tier in (db, web)")).json()["results"]
    assert by_set["id"] == "g1-1"
    assert (await api.get("/resources/vm?labelSelector=tier in web")).json()["field"] == "labelSelector"
    unknown = await api.get("/label/mci/nothing")
    assert (unknown.status_code, "in namespace" in unknown.text, "nothing" in unknown.text) == (404, False, True)
    unknown = await api.get("/request/nothing")
    assert (unknown.status_code, "namespace" in unknown.text, "nothing" in unknown.text) == (404, False, True)
    assert (await api.get("/label/color/red")).json()["field"] == "labelType"
    assert "mci" in (await api.get("/labelInfo")).json()["labelTypes"]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True), ("a=1", True), ("a==1,b=2", True), ("a = 1 , b", True), ("a=", False), ("a!=1", False),
        ("c!=1", True), ("a", True), ("!a", False), ("! c", True), ("a exists", True),
        ("a !exists", False), ("c !exists", True),
        ("a in (1)", True), ("a in (0, 1),b in (2)", True), ("a in (0,2)", False), ("c in (1)", False),
        ("a notin (0,2)", True), ("a notin (0, 1)", False), ("c notin (1)", True), ("a in(1)", True), ("e=x y", True),
    ],
)  # fmt: skip
def test_a_selector_of_labels_has_the_forms_of_kubernetes(text: str, fits: bool) -> None:
    assert parse_selector(text)({"a": "1", "b": "2", "e": "x y"}) is fits


@pytest.mark.parametrize(
    "text", ["=1", "!=1", "a in 1", "a in (1", "a in 1)", "a inn (1)", "a b", "!a=1", "a===1", "()"]
)
def test_a_selector_in_another_form_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as refusal:
        parse_selector(text)
    assert (refusal.value.field, "a notin (b, c)" in refusal.value.allowed) == ("labelSelector", True)


@on_module_loop
async def test_all_vms_of_a_namespace_are_listed(api: ApiHarness) -> None:
    shown = (await api.get(f"/ns/{NS}/resources/node")).json()["node"]
    assert ("m1", "g1-1") in [(one["infraId"], one["node"]["id"]) for one in shown]
    assert "g1-1" in (await api.get(f"/ns/{NS}/resources/vm?option=id")).json()["output"]


@on_module_loop
async def test_there_is_one_holder_of_credentials(api: ApiHarness) -> None:
    (holder,) = (await api.get("/credentialHolder")).json()["credentialHolderList"]
    assert holder == (await api.get("/credentialHolder/admin")).json()
    assert (await api.get("/credentialHolder/nobody")).status_code == 404
    assert (await api.get("/livez", "nobody")).json()["ready"]


# --- changes of records ----------------------------------------------------------------------------------------------


@on_module_loop
async def test_a_spec_and_an_image_are_changed_where_they_are_registered(api: ApiHarness) -> None:
    spec = {"name": "changing", "connectionName": AWS, "cspSpecName": "x1", "vCPU": 2}
    image = {"name": "changing", "connectionName": AWS, "cspImageName": "y1", "osType": "Plan 9"}
    assert (await api.post(f"/ns/{NS}/resources/spec", spec)).status_code == 200
    assert (await api.post(f"/ns/{NS}/resources/image", image)).status_code == 200
    changed = await api.put(f"/ns/{NS}/resources/spec/changing", {"costPerHour": 0.5, "description": "d"})
    assert (changed.status_code, changed.json()["costPerHour"], changed.json()["vCPU"]) == (200, 0.5, 2)
    assert (await api.get(f"/ns/{NS}/resources/spec/changing")).json()["description"] == "d"
    shown = (await api.put(f"/ns/{NS}/resources/image/changing", {"osType": "Inferno"})).json()
    assert (shown["osType"], shown["cspImageName"]) == ("Inferno", "y1")
    assert (await api.put(f"/ns/{NS}/resources/spec/nothing", {"vCPU": 1})).status_code == 404
    assert (await api.put(f"/ns/{NS}/resources/spec/changing", {"vCPU": "many"})).json()["field"] == "vCPU"


@on_module_loop
async def test_a_key_is_described_and_stays_what_it_is(api: ApiHarness) -> None:
    made = (await api.post(f"/ns/{NS}/resources/sshKey", {"name": "mine", "connectionName": AWS})).json()
    shown = (await api.put(f"/ns/{NS}/resources/sshKey/mine", {"description": "of the web servers"})).json()
    assert (shown["description"], shown["publicKey"]) == ("of the web servers", made["publicKey"])
    assert "privateKey" not in shown
    refused = await api.put(f"/ns/{NS}/resources/sshKey/mine", {"publicKey": "ssh-ed25519 other"})
    assert (refused.status_code, refused.json()["field"]) == (400, "publicKey")


@on_module_loop
async def test_clients_see_that_the_drivers_are_ready(api: ApiHarness) -> None:
    assert (await api.get("http://test/spider/readyz", "nobody")).status_code == 200
    assert (await api.get("http://test/spider/driver", "nobody")).status_code == 401
    names = [one["DriverName"] for one in (await api.get("http://test/spider/driver")).json()["driver"]]
    assert "simulated" in names


@on_module_loop
async def test_a_token_fits_into_one_line_of_base64(api: ApiHarness) -> None:
    assert all(len(one) <= 49 for one in api.texts.values())
    assert len(b64encode(f"default:{api.texts['admin']}".encode())) <= 76


@on_module_loop
async def test_minutes_are_integers_as_clients_in_go_read_them(api: ApiHarness) -> None:
    assert '"timeoutMinutes":30}' in (await api.get(f"/ns/{NS}/mci/m1")).text
