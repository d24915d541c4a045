"""Reading bodies leniently: in many dialects, and never with anything but a record or bad input as the result."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateward.domains.mci.api.choice_bodies import parse_image_search
from stateward.domains.mci.api.lenient_json import Fields, parse_body, parse_flag
from stateward.domains.mci.api.mci_bodies import ScaleRequest, parse_mci, parse_scale, parse_subgroup
from stateward.domains.mci.api.resource_bodies import (
    parse_connection,
    parse_image,
    parse_key,
    parse_network,
    parse_rule,
    parse_security_group,
    parse_spec,
    parse_subnet,
)
from stateward.domains.mci.api.tumblebug_params import check_choice, check_id, check_name, normalize_id
from stateward.domains.mci.guards.spec_validation import MAX_VMS
from stateward.domains.mci.model import CloudConnection, FirewallRule, MciSpec, PostCommand, Subnet
from stateward.domains.mci.provider.key_pairs import new_pair
from stateward.errors import BadInput

AWS = CloudConnection("aws-here", "aws", "here")
GROUP = {"name": "g1", "subGroupSize": "3", "specId": "s", "imageId": "i"}
STATIC = {**GROUP, "vNetId": "v", "subnetId": "null", "securityGroupIds": ["a", "b"], "sshKeyId": "k"}

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
trees = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))

READERS: dict[str, tuple[Any, set[str]]] = {
    "mci": (
        lambda body: parse_mci(body, "u", dynamic=True),
        {"name", "subGroups", "vm", "label", "policyOnPartialFailure", "postCommand", "installMonAgent"},
    ),
    "group": (
        lambda body: parse_subgroup(body, dynamic=False),
        {*STATIC, "rootDiskSize", "rootDiskType", "label", "zone"},
    ),
    "scale": (parse_scale, {"numVMsToAdd", "numVMsToRemove", "size"}),
    "network": (lambda body: parse_network(body, AWS, "u"), {"name", "cidrBlock", "subnetInfoList"}),
    "subnet": (parse_subnet, {"name", "ipv4_CIDR", "zone"}),
    "security group": (lambda body: parse_security_group(body, AWS, "u"), {"name", "vNetId", "firewallRules"}),
    "rule": (parse_rule, {"Ports", "Protocol", "Direction", "CIDR", "FromPort", "ToPort", "IPProtocol"}),
    "key": (lambda body: parse_key(body, AWS, "u"), {"name", "publicKey"}),
    "spec": (lambda body: parse_spec(body, AWS), {"name", "cspSpecName", "vCPU", "memoryGiB", "costPerHour"}),
    "image": (lambda body: parse_image(body, AWS), {"name", "cspImageName", "osType"}),
    "connection": (parse_connection, {"name", "provider", "region", "driver", "credential", "options"}),
}


def wanted(body: dict[str, Any], *, dynamic: bool = True) -> MciSpec:
    return parse_mci(Fields(body), "u", dynamic=dynamic)


# --- keys and values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["name", "NAME", "Name", "nAmE"])
def test_keys_count_in_any_case(key: str) -> None:
    assert Fields({key: "m1"}).text("name") == "m1"


def test_keys_that_nobody_knows_are_passed_over() -> None:
    assert wanted({"name": "m1", "subGroups": [GROUP], "whatever": {"a": [1]}}).name == "m1"


@pytest.mark.parametrize("size", [3, "3", 3.0, " 3 "])
def test_numbers_may_come_as_texts(size: object) -> None:
    assert Fields({"n": size}).number("n", default=0, low=0, high=9) == 3


NO_SIZES = ["three", 3.5, True, [3], {"a": 3}, 10, -1, "9" * 5000, float("inf"), "3e0", "0_3", "\uff13", "0x3", "inf"]


@pytest.mark.parametrize("size", NO_SIZES)
def test_what_is_no_number_within_the_limits_is_bad_input(size: object) -> None:
    with pytest.raises(BadInput) as error:
        Fields({"n": size}, "here").number("n", default=0, low=0, high=9)
    assert error.value.field == "here.n"


@pytest.mark.parametrize("text", ["true", "TRUE", "1", "yes", "on"])
def test_a_flag_is_read_in_many_words(text: str) -> None:
    assert parse_flag("force", text)
    assert not parse_flag("force", None)
    with pytest.raises(BadInput):
        parse_flag("force", text + "?")


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ({"a": "b", "n": 1}, {"a": "b", "n": "1"}),
        ("a=b,c=d", {"a": "b", "c": "d"}),
        ("DynamicVM", {"DynamicVM": ""}),
        ("", {}),
        (None, {}),
    ],
)
def test_labels_are_a_map_or_a_text(label: object, expected: dict[str, str]) -> None:
    assert Fields({"label": label}).labels("label") == expected


@pytest.mark.parametrize("label", [{"a\n": "b"}, {"a": "b\x00"}, {"a": ["b"]}, {"a" * 300: ""}, ["a"]])
def test_labels_that_do_not_fit_in_a_line_are_bad_input(label: object) -> None:
    with pytest.raises(BadInput):
        Fields({"label": label}).labels("label")


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "1a", "-a", "a_b", "a b", "a.b", "a/b", "a\n", "ä", "a" * 101, "a:b"])
def test_names_are_a_letter_then_letters_digits_and_signs(name: str) -> None:
    with pytest.raises(BadInput):
        check_name("name", name)
    assert check_name("name", "a+B-1") == "a+B-1"


def test_ids_of_subgroups_are_lower_cased_and_words_are_joined() -> None:
    assert check_id("name", " My Sub_Group ") == "my-sub-group"


@given(st.text())
def test_the_form_of_an_id_is_reached_in_one_step(text: str) -> None:
    assert normalize_id(normalize_id(text)) == normalize_id(text) or not text.isascii()


def test_a_word_of_a_few_is_found_in_any_case() -> None:
    assert check_choice("option", "IDSINDETAIL", "status", "idsInDetail") == "idsInDetail"
    assert check_choice("option", None, "status") == ""


# --- MCIs ------------------------------------------------------------------------------------------------------------


def test_older_bodies_say_vm_for_subgroups_and_sizes_as_texts() -> None:
    found = wanted({"name": "m1", "vm": [{**GROUP, "rootDiskSize": "default", "rootDiskType": "default"}]})
    assert [(one.name, one.size, one.disk_gib, one.disk_type) for one in found.groups] == [("g1", 3, None, "")]


def test_the_spec_and_the_image_are_known_by_older_names_too() -> None:
    found = wanted({"name": "m1", "vm": [{"commonSpec": "s", "commonImage": "i"}]}).groups[0]
    assert (found.spec, found.image, found.size, found.name) == ("s", "i", 1, "g1")


@pytest.mark.parametrize(("given_size", "size"), [("", 1), (0, 1), ("0", 1), (None, 1), (30, 30)])
def test_a_disk_and_a_group_without_a_size_have_the_default(given_size: object, size: int) -> None:
    assert parse_subgroup(Fields({**GROUP, "subGroupSize": given_size}), dynamic=True).size == size


def test_a_disk_has_the_size_that_is_asked_for() -> None:
    assert parse_subgroup(Fields({**GROUP, "rootDiskSize": "42"}), dynamic=True).disk_gib == 42


def test_a_static_subgroup_names_what_it_stands_on_and_null_is_the_first_subnet() -> None:
    found = wanted({"name": "m1", "subGroups": [STATIC]}, dynamic=False).groups[0]
    assert (found.network, found.subnet, found.groups, found.key) == ("v", "", ("a", "b"), "k")


@pytest.mark.parametrize("own", ["acccessFrom", "accesFrom", "accessFrom", "publicKy"])
def test_a_field_that_only_this_server_has_is_not_ignored_in_a_subgroup(own: str) -> None:
    with pytest.raises(BadInput, match=f"(?i){own}"):
        parse_subgroup(Fields({**GROUP, own: ["10.0.0.0/8"]}), dynamic=True)
    assert parse_subgroup(Fields({**GROUP, "accessInfo": "", "publicIp": ""}), dynamic=True).size == 3


@pytest.mark.parametrize("field", ["providerName", "regionName", "osType", "osArchitecture"])
def test_a_search_of_images_refuses_what_is_no_text(field: str) -> None:
    with pytest.raises(BadInput, match=field):
        parse_image_search(Fields({field: 5}))


@pytest.mark.parametrize("missing", ["vNetId", "sshKeyId", "specId", "imageId"])
def test_what_a_static_subgroup_must_name_is_asked_for_by_name(missing: str) -> None:
    body = {name: value for name, value in STATIC.items() if name != missing}
    with pytest.raises(BadInput) as error:
        wanted({"name": "m1", "subGroups": [body]}, dynamic=False)
    assert error.value.field == f"subGroups[0].{missing}"


def test_a_dynamic_subgroup_stands_on_what_all_share_whatever_it_names() -> None:
    assert wanted({"name": "m1", "subGroups": [STATIC]}).groups[0].network == ""


@pytest.mark.parametrize(
    ("groups", "field"),
    [
        ([], "subGroups"),
        ([GROUP, GROUP], "subGroups"),
        ([{**GROUP, "subGroupSize": MAX_VMS}, {**GROUP, "name": "g2"}], "subGroups"),
        ([{**GROUP, "subGroupSize": -1}], "subGroups[0].subGroupSize"),
        ([{**GROUP, "name": "1x"}], "subGroups[0].name"),
        ([7], "subGroups[0]"),
    ],
)
def test_subgroups_that_cannot_be_are_bad_input(groups: list[Any], field: str) -> None:
    with pytest.raises(BadInput) as error:
        wanted({"name": "m1", "subGroups": groups})
    assert error.value.field == field


def test_a_policy_is_one_of_three() -> None:
    assert wanted({"name": "m1", "subGroups": [GROUP], "policyOnPartialFailure": "Rollback"}).policy == "rollback"
    with pytest.raises(BadInput):
        wanted({"name": "m1", "subGroups": [GROUP], "policyOnPartialFailure": "shrug"})


def test_a_post_command_is_a_text_or_a_list() -> None:
    body = {"userName": "u", "command": "id", "timeoutMinutes": "5"}
    found = wanted({"name": "m1", "subGroups": [GROUP], "postCommand": body})
    assert found.post_command == PostCommand("u", ("id",), 5.0)
    assert wanted({"name": "m1", "subGroups": [GROUP], "postCommand": {"command": []}}).post_command is None


@pytest.mark.parametrize(
    ("body", "wish"),
    [
        ({"numVMsToAdd": "2"}, ScaleRequest("by", 2)),
        ({"numVMsToRemove": 2}, ScaleRequest("by", -2)),
        ({"SIZE": 0}, ScaleRequest("to", 0)),
    ],
)
def test_a_subgroup_is_scaled_by_a_number_or_to_a_size(body: dict[str, Any], wish: ScaleRequest) -> None:
    assert parse_scale(Fields(body)) == wish


@pytest.mark.parametrize("body", [{}, {"numVMsToAdd": 0}, {"size": 1, "numVMsToAdd": 1}, {"numVMsToAdd": -1}])
def test_a_scaling_that_says_nothing_or_two_things_is_bad_input(body: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        parse_scale(Fields(body))


# --- parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ({"Ports": "22,900-1000", "Protocol": "TCP", "Direction": "inbound"}, FirewallRule("22,900-1000", "tcp")),
        ({"FromPort": "22", "ToPort": "22", "IPProtocol": "tcp", "Direction": "Inbound"}, FirewallRule("22", "tcp")),
        ({"fromPort": 1, "toPort": "65535", "ipProtocol": "udp"}, FirewallRule("1-65535", "udp")),
        ({"FromPort": "-1", "ToPort": "-1", "IPProtocol": "icmp"}, FirewallRule("", "icmp")),
        (
            {"Ports": "22", "Direction": "egress", "CIDR": "10.0.0.0/8"},
            FirewallRule("22", "tcp", "outbound", "10.0.0.0/8"),
        ),
        ({"Protocol": "ALL"}, FirewallRule("", "all")),
    ],
)
def test_rules_are_read_in_newer_and_in_older_words(body: dict[str, Any], rule: FirewallRule) -> None:
    assert parse_rule(Fields(body)) == rule


@pytest.mark.parametrize(
    "body",
    [
        {"Ports": "70000"},
        {"Ports": "22-20"},
        {"Protocol": "ipx"},
        {"Direction": "up"},
        {"CIDR": "10.0.0.0/99"},
        {"CIDR": "10.1.2.3/8"},
    ],
)
def test_rules_that_cannot_be_are_bad_input(body: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        parse_rule(Fields(body))


def test_a_network_has_subnets_within_it_that_do_not_overlap() -> None:
    subnets = [{"name": "a", "ipv4_CIDR": "10.0.1.0/24"}, {"Name": "b", "IPv4_CIDR": "10.0.2.0/24", "zone": "z"}]
    found = parse_network(Fields({"name": "v", "subnetInfoList": subnets}), AWS, "u")
    assert (found.cidr, found.subnets[1]) == ("10.0.0.0/16", Subnet("b", "10.0.2.0/24", "z"))


@pytest.mark.parametrize("cidr", ["0.0.0.0/0", "10.0.0.0/7", "10.0.0.5/16", "nonsense"])
def test_a_range_that_no_network_can_have_is_bad_input(cidr: str) -> None:
    with pytest.raises(BadInput, match="without bits behind its prefix") as error:
        parse_network(Fields({"name": "v", "cidrBlock": cidr}), AWS, "u")
    assert error.value.field == "cidrBlock"


@pytest.mark.parametrize("cidr", ["10.1.0.0/24", "10.0.1.0/25", "10.0.2.7/24", "nonsense", ""])
def test_a_subnet_outside_or_on_top_of_another_is_bad_input(cidr: str) -> None:
    subnets = [{"name": "a", "ipv4_CIDR": "10.0.1.0/24"}, {"name": "b", "ipv4_CIDR": cidr}]
    with pytest.raises(BadInput) as error:
        parse_network(Fields({"name": "v", "subnetInfoList": subnets}), AWS, "u")
    assert error.value.field == "subnetInfoList[1].ipv4_CIDR"


def test_a_private_key_that_somebody_sends_is_not_kept() -> None:
    found = parse_key(Fields({"name": "k", "publicKey": new_pair().public, "privateKey": "SECRET"}), AWS, "u")
    assert "SECRET" not in msgspec.json.encode(found).decode()


# --- whatever comes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", READERS)
def test_whatever_comes_is_read_or_is_bad_input_and_what_is_read_can_be_stored(name: str) -> None:
    reader, fields = READERS[name]
    near = st.dictionaries(st.sampled_from(sorted(fields)) | st.text(max_size=4), trees, max_size=6)

    @settings(max_examples=30)
    @given(near | trees)
    def check(body: Any) -> None:
        with suppress(BadInput):
            found = reader(Fields(body))
            assert "\\u0000" not in msgspec.json.encode(found).decode()

    check()


@settings(max_examples=50)
@given(st.binary(max_size=50) | trees.map(lambda tree: msgspec.json.encode(tree)))
def test_any_bytes_are_a_body_or_bad_input(body: bytes) -> None:
    with suppress(BadInput):
        assert isinstance(parse_body(body), Fields)


def test_a_body_that_is_nested_without_end_is_bad_input() -> None:
    with pytest.raises(BadInput):
        parse_body(b'{"a":' * 100_000)
