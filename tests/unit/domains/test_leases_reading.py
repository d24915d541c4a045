"""Parsing of the bodies that clients send about leases."""

from typing import Any

import pytest

from stateward.domains.leases import property_expressions
from stateward.domains.leases.host_service import read_host_spec
from stateward.domains.leases.lease_specs import read_new_spec
from stateward.domains.leases.model import HostSpec, LeaseSpec
from stateward.domains.leases.resources import LeasedMcis, PhysicalHosts, ResourcePlugins, VirtualInstances
from stateward.domains.leases.wire_values import format_minute, format_time, read_time
from stateward.errors import BadInput

NOW = read_time("now", "2030-01-01 12:00", 0.0)
RESOURCES = ResourcePlugins([PhysicalHosts(), VirtualInstances(), LeasedMcis({})])
HOST = {"resource_type": "physical:host", "min": 1, "max": 2}


def spec(**given: Any) -> LeaseSpec:
    whole = {"name": "n", "end_date": "2030-01-02 12:00", "reservations": [HOST], **given}
    return read_new_spec(whole, RESOURCES, lambda: "r", NOW, 3600.0)


def test_times_are_read_to_the_minute_and_told_to_the_microsecond() -> None:
    at = read_time("start_date", "2030-01-31 14:05", NOW)
    assert format_time(at) == "2030-01-31T14:05:00.000000"
    assert format_minute(at) == "2030-01-31 14:05"
    assert read_time("start_date", format_time(at), NOW) == at
    assert read_time("start_date", "now", NOW) == NOW
    assert format_time(None) is None


@pytest.mark.parametrize("wrong", ["tomorrow", "2030-13-01 00:00", "", None, 7, "9999-01-01 00:00"])
def test_what_is_no_time_is_refused_with_the_field_named(wrong: object) -> None:
    with pytest.raises(BadInput) as caught:
        read_time("end_date", wrong, NOW)
    assert caught.value.field == "end_date"


@pytest.mark.parametrize(
    "odd", ["\uff12\uff10\uff13\uff10-01-31 14:00", "2030-01-31\n14:00", "2030-01-31 14:00 ", "2030-01-31\u00a014:00"]
)
def test_a_time_is_written_in_plain_digits_and_nothing_else(odd: str) -> None:
    with pytest.raises(BadInput, match=r"is an invalid date\. Required format: %Y-%m-%d %H:%M"):
        read_time("start_date", odd, NOW)


def test_a_time_of_the_next_centuries_is_a_time() -> None:
    assert format_minute(read_time("end_date", "2089-01-01 00:00", NOW)) == "2089-01-01 00:00"
    assert format_minute(read_time("end_date", "9998-12-31 23:59", NOW)) == "9998-12-31 23:59"


def test_a_lease_can_be_made_before_anything_is_reserved() -> None:
    assert spec(reservations=[]).reservations == ()


def test_a_lease_has_at_most_a_hundred_reservations() -> None:
    assert len(spec(reservations=[HOST] * 100).reservations) == 100
    with pytest.raises(BadInput, match="at most 100"):
        spec(reservations=[HOST] * 101)


ODD_TEXTS = (
    "1_0",
    " 10",
    "10 ",
    "10\n",
    "\uff11\uff10",
    "\u0663",
    "0x10",
    "1e1",
    "-5",
    "",
    "1.0",
    "1" * 5000,
    "+2",
    "02",
    "-0",
)
ODD_NUMBERS = (*ODD_TEXTS, 1.0, 2.5, -1, 10**30, True, None, [1])


@pytest.mark.parametrize("odd", ODD_NUMBERS)
@pytest.mark.parametrize("field", ["vcpus", "memory_mb", "disk_gb", "amount"])
def test_a_number_of_instances_is_a_plain_one_within_bounds(odd: object, field: str) -> None:
    wish = {"resource_type": "virtual:instance", "vcpus": 1, "memory_mb": 1, "disk_gb": 1, "amount": 1, field: odd}
    with pytest.raises(BadInput) as caught:
        spec(reservations=[wish])
    assert caught.value.field == field


@pytest.mark.parametrize("odd", ODD_NUMBERS)
@pytest.mark.parametrize("field", ["min", "max"])
def test_a_number_of_hosts_is_a_plain_one_within_bounds(odd: object, field: str) -> None:
    with pytest.raises(BadInput) as caught:
        spec(reservations=[{**HOST, field: odd}])
    assert caught.value.field == field


@pytest.mark.parametrize("odd", [*ODD_TEXTS, 2.5, -1, 10**30, True])
@pytest.mark.parametrize("field", ["cleaning_time", "vcpus", "memory_mb", "local_gb"])
def test_a_number_of_a_host_is_a_plain_one_within_bounds(odd: object, field: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_host_spec(HostSpec("h"), {field: odd}, 0.0)
    assert caught.value.field == field


def test_a_host_without_a_cleaning_time_of_its_own_has_the_usual_one_again() -> None:
    own = read_host_spec(HostSpec("h", cleaning=60.0), {"cleaning_time": "5"}, 60.0)
    assert own.cleaning == 300.0
    assert read_host_spec(own, {"rack": "7"}, 90.0).cleaning == 300.0
    assert read_host_spec(own, {"cleaning_time": None}, 90.0).cleaning == 90.0


def test_the_cleaning_time_of_a_host_is_at_most_a_year() -> None:
    year_minutes = 366 * 24 * 60
    assert read_host_spec(HostSpec("h"), {"cleaning_time": year_minutes}, 0.0).cleaning == year_minutes * 60.0
    with pytest.raises(BadInput):
        read_host_spec(HostSpec("h"), {"cleaning_time": year_minutes + 1}, 0.0)


def test_a_key_of_a_property_has_at_most_64_characters() -> None:
    assert read_host_spec(HostSpec("h"), {"k" * 64: "v"}, 0.0).properties["k" * 64] == "v"
    for wrong in ("k" * 65, "", "a/b", "a\nb"):
        with pytest.raises(BadInput):
            read_host_spec(HostSpec("h"), {wrong: "v"}, 0.0)


def test_a_lease_begins_now_and_is_warned_an_hour_before_its_end_unless_told_otherwise() -> None:
    found = spec()
    assert (found.start, found.end, found.before_end) == (NOW, NOW + 86400, NOW + 86400 - 3600)


def test_the_warning_is_never_before_the_start() -> None:
    assert spec(end_date="2030-01-01 12:30").before_end == NOW


def test_the_warning_can_be_given_as_an_event_too() -> None:
    event = {"event_type": "before_end_lease", "event_date": "2030-01-02 06:00"}
    assert spec(events=[event]).before_end == spec(before_end_date="2030-01-02 06:00").before_end


def test_a_start_a_moment_ago_counts_as_now_because_clients_have_minutes_only() -> None:
    whole = {"name": "n", "start_date": "2030-01-01 12:00", "end_date": "2030-01-01 12:00", "reservations": [HOST]}
    found = read_new_spec(whole, RESOURCES, lambda: "r", NOW + 30, 3600.0)
    assert (found.start, found.end) == (NOW + 30, NOW + 30)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": " "}, "name"),
        ({"name": "x" * 300}, "name"),
        ({"start_date": "2029-01-01 00:00"}, "start_date"),
        ({"end_date": "2029-12-31 00:00"}, "end_date"),
        ({"end_date": None}, "end_date"),
        ({"before_end_date": "2030-01-05 00:00"}, "before_end_date"),
        ({"reservations": ["all"]}, "reservations"),
        ({"reservations": [{"resource_type": "tape"}]}, "resource_type"),
        ({"reservations": [{**HOST, "min": 0}]}, "min"),
        ({"reservations": [{**HOST, "min": "many"}]}, "min"),
        ({"reservations": [{**HOST, "min": True}]}, "min"),
        ({"reservations": [{**HOST, "min": 3}]}, "max"),
        ({"reservations": [{**HOST, "resource_properties": "gpu"}]}, "resource_properties"),
        ({"reservations": [{**HOST, "hypervisor_properties": 7}]}, "hypervisor_properties"),
        ({"reservations": [{"resource_type": "virtual:instance", "amount": 1}]}, "vcpus"),
        ({"reservations": [{"resource_type": "mci", "template": "no JSON"}]}, "template"),
        ({"events": [{"event_type": "party", "event_date": "2030-01-02 06:00"}]}, "events"),
        ({"events": [{"event_type": "before_end_lease"}]}, "events"),
        ({"events": [{"event_type": "before_end_lease", "event_date": ""}]}, "events"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_field_named(given: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as caught:
        spec(**given)
    assert caught.value.field == field


def test_instances_can_be_wanted_together_apart_or_anyhow() -> None:
    wish = {"resource_type": "virtual:instance", "vcpus": 1, "memory_mb": 1, "disk_gb": 0, "amount": "2"}
    found = {
        word: RESOURCES["virtual:instance"].demand(VirtualInstances().read_details({**wish, "affinity": word}, None))
        for word in ("True", "False", "None")
    }
    assert [(one.affinity, one.anti_affinity) for one in found.values() if one is not None] == [
        (True, False),
        (False, True),
        (False, False),
    ]


def test_a_template_can_be_given_as_text_and_cannot_change() -> None:
    details = LeasedMcis({}).read_details({"template": '{"name": "m"}'}, None)
    assert details["template"] == {"name": "m"}
    assert LeasedMcis({}).read_details({}, details) == details
    with pytest.raises(BadInput):
        LeasedMcis({}).read_details({"template": {"name": "other"}}, details)
    with pytest.raises(BadInput):
        LeasedMcis({}).read_details({"mci": "other"}, details)


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ("", True),
        ("[]", True),
        ('["=", "$gpu", "a100"]', True),
        ('["!=", "$gpu", "a100"]', False),
        ('[">=", "$vcpus", "8"]', True),
        ('[">", "$vcpus", 8]', False),
        ('["<", "$vcpus", "16"]', True),
        ('["and", ["=", "$gpu", "a100"], ["<=", "$vcpus", "8"]]', True),
        ('["or", ["=", "$gpu", "none"], ["==", "$vcpus", "8"]]', True),
        ('["=", "$missing", "x"]', False),
        ('["<", "$vcpus", "1_0"]', False),  # no number, so both are compared as text, and "8" is after "1_0"
        ('["=", "$vcpus", "\uff18"]', False),
    ],
)
def test_expressions_say_which_hosts_will_do(expression: str, fits: bool) -> None:
    assert property_expressions.parse_expression("p", expression)({"gpu": "a100", "vcpus": "8"}) is fits


@pytest.mark.parametrize("wrong", ["{", "[1]", '["=", "gpu", "x"]', '["~", "$gpu", "x"]', '["and"]', "[" * 5000, '"x"'])
def test_what_is_no_expression_is_refused(wrong: str) -> None:
    with pytest.raises(BadInput):
        property_expressions.parse_expression("resource_properties", wrong)
