"""Demand, over everything that could be reported."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stateward.domains.edge.model import AppStatus, AutoprovSpec, AutoscaleSpec
from stateward.domains.edge.policy.demand import (
    ClusterLoad,
    desired_nodes,
    plan_deployment,
    record_interval,
    unmeasured_requests,
)

POLICY = AutoscaleSpec(min=2, max=8, cpu=100.0, mem=50.0)
LOADS = st.floats(0, 5000, allow_nan=False)


@pytest.mark.parametrize(
    ("nodes", "cpu", "wanted"),
    [
        (2, 0, 2),
        (3, 250, 3),
        (3, 150, 2),
        (3, 300, 3),
        (3, 329, 3),
        (3, 331, 4),
        (3, 500, 5),
        (3, 5000, 8),
        (8, 100, 2),
    ],
)
def test_nodes_follow_the_load_within_limits_and_small_overloads_are_tolerated(
    nodes: int, cpu: float, wanted: int
) -> None:
    assert desired_nodes(POLICY, nodes, ClusterLoad(cpu)) == wanted


def test_a_load_that_no_number_of_nodes_could_carry_needs_the_most_that_are_allowed() -> None:
    assert desired_nodes(AutoscaleSpec(min=1, max=3, cpu=1e-300), 1, ClusterLoad(1e308)) == 3


def test_the_scarcest_of_all_decides_and_what_has_no_target_does_not_matter() -> None:
    assert desired_nodes(POLICY, 2, ClusterLoad(100, 200, 10_000)) == 4
    assert desired_nodes(AutoscaleSpec(), 5, ClusterLoad(1000)) == 5


@given(st.integers(1, 20), LOADS, LOADS)
def test_the_number_of_nodes_is_always_within_limits_and_enough_or_the_most(nodes: int, cpu: float, mem: float) -> None:
    found = desired_nodes(POLICY, nodes, ClusterLoad(cpu, mem))
    raw = max(cpu / 100, mem / 50)
    assert POLICY.min <= found <= POLICY.max
    assert found in (nodes, min(max(ceil(raw), POLICY.min), POLICY.max))
    assert found == POLICY.max or raw < 1.1 * found or raw <= found


CLOUDLETS = ("a", "b", "c", "d")
PROV = AutoprovSpec(CLOUDLETS, min=1, max=3, requests=10, deploy_after=2, undeploy_after=2)


def members(*cloudlets: str) -> tuple[str, ...]:
    return tuple(f"{one}:autocluster-x:x" for one in cloudlets)


def test_an_app_is_deployed_after_enough_intervals_in_a_row() -> None:
    status = AppStatus(members("a"))
    status = record_interval(PROV, status, {"b": 10, "c": 9})
    assert plan_deployment(PROV, status, CLOUDLETS).deploy == ()
    status = record_interval(PROV, status, {"b": 11, "c": 10})
    assert plan_deployment(PROV, status, CLOUDLETS).deploy == ("b",)
    status = record_interval(PROV, status, {"c": 10})
    assert plan_deployment(PROV, status, CLOUDLETS).deploy == ("c",)


def test_what_is_on_an_offline_cloudlet_is_replaced_up_to_the_most() -> None:
    assert plan_deployment(PROV, AppStatus(members("a")), ["b", "c"]).deploy == ("b",)
    assert plan_deployment(PROV, AppStatus(members("a", "b", "c")), ["d"]).deploy == ()


def test_what_is_astray_is_removed_and_what_is_idle_down_to_the_least() -> None:
    status = AppStatus(members("a", "b", "z"), low={"a": 5, "b": 5})
    assert plan_deployment(PROV, status, [*CLOUDLETS, "z"]).remove == (*members("z"), *members("a"))


def test_of_idle_instances_the_one_goes_first_that_has_been_idle_longest() -> None:
    status = AppStatus(members("a", "b", "c"), low={"a": 2, "b": 9, "c": 4})
    two = replace(PROV, min=2)
    assert plan_deployment(two, status, CLOUDLETS).remove == members("b")
    assert plan_deployment(PROV, status, CLOUDLETS).remove == members("b", "c")


def test_where_demand_is_measured_reports_count_for_cloudlets_without_the_app() -> None:
    measured, status = replace(PROV, demand="measured"), AppStatus(members("a"))
    reported = {"a": 50, "c": 50}
    assert unmeasured_requests(PROV, status, reported) == reported
    for _ in range(PROV.deploy_after):
        status = record_interval(measured, status, unmeasured_requests(measured, status, reported))
        status = record_interval(measured, status, {"a": 0})  # as the agent of a counts
    assert (status.high, status.low) == ({"c": 2}, {"a": 2})
    assert plan_deployment(measured, status, CLOUDLETS).deploy == ("c",)


def test_a_cloudlet_where_a_create_failed_is_avoided_until_the_next_interval() -> None:
    status = AppStatus(high={"a": 5}, avoided=("a",))
    assert "a" not in plan_deployment(PROV, status, CLOUDLETS).deploy
    assert "a" in plan_deployment(PROV, record_interval(PROV, status, {"a": 50}), CLOUDLETS).deploy


NAMES = st.sampled_from(CLOUDLETS)


def test_a_lower_max_is_reached_and_those_go_first_that_do_not_serve() -> None:
    status = AppStatus(members("a", "b", "c", "d"), low={"b": 3, "c": 1})
    one = replace(PROV, max=1)
    assert plan_deployment(one, status, CLOUDLETS).remove == members("b", "c", "a")
    assert plan_deployment(one, status, ["a", "b", "c"], members("c")).remove == members("c", "d", "b")
    assert plan_deployment(one, replace(status, leaving=members("b", "c", "d")), CLOUDLETS).remove == ()


def test_what_is_missing_does_not_serve_and_is_replaced() -> None:
    assert plan_deployment(PROV, AppStatus(members("a")), CLOUDLETS).deploy == ()
    assert plan_deployment(PROV, AppStatus(members("a")), CLOUDLETS, members("a")).deploy == ("b",)


@given(
    st.sets(NAMES), st.sets(NAMES), st.sets(NAMES), st.sets(NAMES), st.dictionaries(NAMES, st.integers(0, 5)),
    st.dictionaries(NAMES, st.integers(0, 5)),
)  # fmt: skip
def test_a_plan_never_leads_beyond_the_limits(
    present: set[str],
    leaving: set[str],
    online: set[str],
    missing: set[str],
    high: dict[str, int],
    low: dict[str, int],
) -> None:
    status = AppStatus(members(*sorted(present)), members(*sorted(present & leaving)), high, low)
    plan = plan_deployment(PROV, status, online, members(*missing))
    assert len(status.members) + len(plan.deploy) <= max(PROV.max, len(status.members))
    assert not {one.partition(":")[0] for one in status.members} & set(plan.deploy)
    assert set(plan.deploy) <= online
    staying = {one for one in status.members if one not in status.leaving}
    assert len(staying - {*plan.remove}) <= PROV.max
    serving = {one for one in staying if one.partition(":")[0] in online - missing}
    assert len(serving - {*plan.remove}) >= min(PROV.min, len(serving))
