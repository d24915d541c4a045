"""The state of a service by first match, and of a system by the seed's pseudo-code, for all combinations."""

from collections.abc import Iterable, Iterator
from itertools import chain, combinations, product
from typing import TypeVar

import pytest

from stateward.domains.systems.backends.port import InstancePhase, ServiceInstance, check_fits, choose_node
from stateward.domains.systems.definition import NodePool
from stateward.domains.systems.errors import NodePoolFull
from stateward.domains.systems.lifecycle import NodePoolState, ServiceState
from stateward.domains.systems.states import ServiceFacts, facts_at_rest, roll_up, service_state

T = TypeVar("T")

SEED = (ServiceState.DEGRADED, ServiceState.UPDATING, ServiceState.SCALING, ServiceState.STABLE)


def pseudo_code(services: tuple[ServiceState, ...]) -> str:
    """Return what the seed says, in its own words."""
    if any(service == "degraded" for service in services):
        return "degraded"
    if any(service == "updating" for service in services):
        return "updating"
    if any(service == "scaling" for service in services):
        return "scaling"
    return "stable"


def test_the_roll_up_is_the_pseudo_code_of_the_seed_for_all_combinations() -> None:
    for many in range(6):
        for services in product(SEED, repeat=many):
            assert roll_up(services) == pseudo_code(services)


def test_the_roll_up_is_the_table_of_the_spec_for_all_sets_of_states() -> None:
    for services in subsets(ServiceState):
        for pools in subsets(NodePoolState):
            words = {*map(str, services), *map(str, pools)}
            expected = (
                "degraded" if words & {"failed", "degraded"}
                else "updating" if words & {"updating", "pending", "deleting"}
                else "scaling" if words & {"scaling"}
                else "stable"
            )  # fmt: skip
            assert roll_up(services, pools) == expected


def subsets(states: Iterable[T]) -> Iterator[tuple[T, ...]]:
    every = list(states)
    return chain.from_iterable(combinations(every, many) for many in range(len(every) + 1))


def test_the_first_match_decides_the_state_of_a_service() -> None:
    for observed, overdue, ailing, provided, enough in product((True, False), repeat=5):
        expected = (
            "updating" if not observed
            else "failed" if overdue
            else "degraded" if ailing
            else "updating" if not provided
            else "scaling" if not enough
            else "stable"
        )  # fmt: skip
        facts = ServiceFacts(observed, overdue, ailing, provided, 2, 2 if enough else 1)
        assert service_state(facts) == expected


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        ([ServiceInstance("a-0", "a", InstancePhase.UP, ready=True)], "stable"),
        ([ServiceInstance("a-0", "a", InstancePhase.CRASHED)], "degraded"),
        ([ServiceInstance("a-0", "a", InstancePhase.UP, ready=False)], "degraded"),
        ([], "scaling"),
        (
            [
                ServiceInstance("a-0", "a", InstancePhase.UP, ready=True),
                ServiceInstance("a-1", "a", InstancePhase.UP, ready=True),
            ],
            "scaling",
        ),
        ([ServiceInstance("b-0", "b", InstancePhase.UP, ready=True)], "updating"),
        (
            [
                ServiceInstance("a-0", "a", InstancePhase.UP, ready=True),
                ServiceInstance("a-1", "a", InstancePhase.STOPPING),
            ],
            "stable",
        ),
    ],
)
def test_instances_tell_the_state_of_a_settled_service(seen: list[ServiceInstance], state: str) -> None:
    assert service_state(facts_at_rest(1, "a", seen)) == state


def test_an_instance_is_placed_where_most_room_is() -> None:
    assert choose_node("main", NodePool(2, 2), {"main-0": 1}) == "main-1"


def test_a_full_pool_takes_nobody() -> None:
    with pytest.raises(NodePoolFull, match="node pool main is full: 1 nodes with 2 slots"):
        choose_node("main", NodePool(1, 2), {"main-0": 2})


def test_a_pool_does_not_shrink_below_what_runs_on_it() -> None:
    check_fits("main", NodePool(1, 2), {"main-0": 2, "main-1": 0})
    with pytest.raises(NodePoolFull):
        check_fits("main", NodePool(1, 2), {"main-1": 1})
