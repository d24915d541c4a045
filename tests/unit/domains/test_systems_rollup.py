from collections.abc import Iterable
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.domains.systems.lifecycle import NodePoolState, ServiceState, SystemState
from stateward.domains.systems.states import roll_up, system_state
from stateward.errors import UnknownName
from stateward.lifecycle import State

SERVICES = st.lists(st.sampled_from(ServiceState), max_size=8)
POOLS = st.lists(st.sampled_from(NodePoolState), max_size=4)


def modelled(words: list[str]) -> str:
    if "failed" in words or "degraded" in words:
        return "degraded"
    if "updating" in words or "pending" in words or "deleting" in words:
        return "updating"
    return "scaling" if "scaling" in words else "stable"


def subsets(words: Iterable[State]) -> list[tuple[State, ...]]:
    known = [*words]
    return [each for many in range(len(known) + 1) for each in combinations(known, many)]


def test_most_urgent_state_of_any_part_decides_in_all_combinations_there_are() -> None:
    every = list(product(subsets(ServiceState), subsets(NodePoolState)))
    found = [roll_up(services, pools) for services, pools in every]  # type: ignore[arg-type]
    assert found == [modelled([*services, *pools]) for services, pools in every]
    assert len(every) == 2**7 * 2**6


@given(SERVICES, POOLS)
def test_how_many_are_in_the_same_state_does_not_matter(
    services: list[ServiceState], pools: list[NodePoolState]
) -> None:
    assert roll_up(services, pools) == roll_up(set(services), set(pools))


def test_system_without_services_is_stable() -> None:
    assert roll_up(()) is SystemState.STABLE


def test_node_pool_counts_like_a_service() -> None:
    assert roll_up([ServiceState.STABLE], [NodePoolState.SCALING]) is SystemState.SCALING


def test_one_failed_service_degrades_the_system() -> None:
    assert roll_up([ServiceState.STABLE, ServiceState.UPDATING, ServiceState.FAILED]) is SystemState.DEGRADED


@pytest.mark.parametrize("own", [SystemState.PENDING, SystemState.FAILED, SystemState.DELETING])
def test_system_with_a_state_of_its_own_does_not_follow(own: SystemState) -> None:
    assert system_state(own, [ServiceState.DEGRADED]) is own


@pytest.mark.parametrize(
    "living", [SystemState.STABLE, SystemState.UPDATING, SystemState.SCALING, SystemState.DEGRADED]
)
def test_living_system_follows_its_services(living: SystemState) -> None:
    assert system_state(living, [ServiceState.SCALING]) is SystemState.SCALING


def test_word_that_is_no_state_does_not_pass_for_stable() -> None:
    with pytest.raises(UnknownName) as caught:
        roll_up(["degrade"])  # type: ignore[list-item]
    assert caught.value.nearest == "degraded"
