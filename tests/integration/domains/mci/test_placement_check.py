"""Objects that a request names must exist and fit before it is accepted; each provider is asked once, concurrently."""

from typing import Any

from stateward.drivers.simulated.provider_catalogue import SPECS
from stateward.store.records import Key
from tests.integration.domains.mci.api_harness import AWS, DEAD, MICRO, NANO, NS, ApiHarness, group, mci

GCP = "gcp-asia-northeast3"
R = f"/ns/{NS}/resources"
PLACED = {"connectionName": AWS}
STATIC = {"vNetId": "net", "subnetId": "a", "securityGroupIds": ["wall"], "sshKeyId": "key"}


async def refused(api: ApiHarness, path: str, body: dict[str, Any]) -> str:
    """Ask for something that is bad input, and return the field."""
    answer = await api.post(path, body)
    assert answer.status_code == 400, answer.text
    return str(answer.json()["field"])


WRONG = [
    ({"connectionName": "aws-nowhere"}, "connectionName"),
    ({"connectionName": GCP}, "specId"),  # the spec is one of aws
    ({"connectionName": "aws-us-east-1"}, "specId"),  # the spec is one of another region
    ({"specId": "aws+ap-northeast-2+t3.huge"}, "specId"),
    ({"specId": "nonsense"}, "specId"),
    ({"imageId": "beos"}, "imageId"),
    ({"imageId": "gcp+asia-northeast3+ubuntu22.04"}, "imageId"),
    ({"imageId": "aws+us-east-1+ubuntu22.04"}, "imageId"),
    ({"sshKeyId": "nobody-s"}, "sshKeyId"),
]


async def test_what_does_not_fit_is_refused_with_its_field_and_nothing_is_made(api: ApiHarness) -> None:
    for wrong, field in WRONG:
        body = mci("m1", group("good", 1), group("bad", 1, **wrong))
        assert await refused(api, f"/ns/{NS}/mciDynamic", body) == f"subGroups[1].{field}", wrong
    assert await api.engine.store.reader.object(Key(NS, "m1")) is None
    assert (await api.get(f"{R}/vNet")).json() == {"vNet": []}


async def test_a_subgroup_that_does_not_fit_is_not_added(api: ApiHarness) -> None:
    await api.created()
    for wrong, field in WRONG:
        assert await refused(api, f"/ns/{NS}/mci/m1/subGroupDynamic", group("bad", 1, **wrong)) == field, wrong
    assert (await api.get(f"/ns/{NS}/mci/m1/subgroup")).json() == {"output": ["g1"]}
    assert (await api.status())["status"] == "Running:2 (R:2/2)"


async def test_a_review_says_of_the_same_that_it_cannot_be_made(api: ApiHarness) -> None:
    for wrong, field in WRONG:
        shown = (await api.post(f"/ns/{NS}/mciDynamicReview", mci("m1", group("bad", 1, **wrong)))).json()
        assert (shown["overallStatus"], shown["creationViable"]) == ("Error", False), wrong
        assert field in shown["vmReviews"][0]["message"], wrong


async def with_resources(api: ApiHarness) -> None:
    subnets = [{"name": "a", "ipv4_CIDR": "10.0.1.0/24"}]
    assert (await api.post(f"{R}/vNet", {"name": "net", **PLACED, "subnetInfoList": subnets})).status_code == 201
    assert (await api.post(f"{R}/securityGroup", {"name": "wall", **PLACED, "vNetId": "net"})).status_code == 200
    for name, place in (("key", AWS), ("other", GCP)):
        assert (await api.post(f"{R}/sshKey", {"name": name, "connectionName": place})).status_code == 200


WRONG_STATIC: list[tuple[dict[str, Any], str]] = [
    ({"vNetId": "nowhere"}, "vNetId"),
    ({"subnetId": "b"}, "subnetId"),
    ({"securityGroupIds": ["wall", "none"]}, "securityGroupIds"),
    ({"sshKeyId": "nobody-s"}, "sshKeyId"),
    ({"sshKeyId": "other"}, "sshKeyId"),  # a key of another connection
    ({"specId": MICRO}, "vNetId"),  # a spec of another connection than the network's
]


async def test_a_static_mci_must_name_resources_of_its_connection(api: ApiHarness) -> None:
    await with_resources(api)
    await api.created()
    for wrong, field in WRONG_STATIC:
        body = mci("m2", group("g1", 1, **{**STATIC, **wrong}))
        assert await refused(api, f"/ns/{NS}/mci", body) == f"subGroups[0].{field}", wrong
        assert await refused(api, f"/ns/{NS}/mci/m1/vm", group("g2", 1, **{**STATIC, **wrong})) == field, wrong


async def test_another_connection_to_the_same_region_takes_the_same_specs(api: ApiHarness) -> None:
    place = {"name": "seoul", "provider": "aws", "region": "ap-northeast-2", "driver": "simulated"}
    assert (await api.post("http://test/api/v1/mci/connections", place)).status_code == 201
    shown = await api.created(mci("m1", group("g1", 1, connectionName="seoul")))
    assert shown["vm"][0]["connectionName"] == "seoul"


async def test_a_spec_that_is_registered_for_a_connection_fits_no_other_region(api: ApiHarness) -> None:
    spec = {"name": "small", "connectionName": AWS, "cspSpecName": "t3.nano"}
    assert (await api.post(f"{R}/spec", spec)).status_code == 200
    body = mci("m1", group("g1", 1, specId="small", connectionName="aws-us-east-1"))
    assert await refused(api, f"/ns/{NS}/mciDynamic", body) == "subGroups[0].specId"


async def test_a_provider_that_does_not_answer_holds_up_no_request(api: ApiHarness) -> None:
    api.set_profile(DEAD)
    assert (await api.post(f"/ns/{NS}/mciDynamic", mci())).status_code == 200


async def test_each_question_to_a_provider_is_asked_once_however_many_subgroups_have_it(api: ApiHarness) -> None:
    specs = [f"aws+ap-northeast-2+{one.name}" for one in SPECS["aws"][:3]]
    groups = [group(f"g{number}", 1, specId=specs[number % 3]) for number in range(60)]
    assert NANO in specs
    before = api.calls.count(("aws", "check"))
    shown = await api.created(mci("m1", *groups))
    assert shown["status"] == "Running:60 (R:60/60)"
    assert api.calls.count(("aws", "check")) - before == len(specs)
    assert (await api.post(f"/ns/{NS}/mciDynamicReview", mci("m2", *groups))).json()["creationViable"]
    assert api.calls.count(("aws", "check")) - before == 2 * len(specs)
