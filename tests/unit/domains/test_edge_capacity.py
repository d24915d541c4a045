"""Capacity of a cloudlet, as pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.domains.edge.errors import CapacityExceeded
from stateward.domains.edge.model import CloudletStatus, ClusterInst
from stateward.domains.edge.policy.capacity import ResourceAmounts, amounts_of, check_capacity, excess_text

NOTHING = ResourceAmounts()


def test_a_cluster_takes_what_its_nodes_take() -> None:
    assert amounts_of(ClusterInst(nodes=3, cores=0.5, memory=100)) == ResourceAmounts(1.5, 300)


def test_the_refusal_names_what_is_asked_used_and_free() -> None:
    with pytest.raises(CapacityExceeded) as refused:
        check_capacity("oslo", CloudletStatus(cores=4), ResourceAmounts(3), ResourceAmounts(1.5), NOTHING)
    assert str(refused.value) == "cloudlet oslo has too few cores: 1.5 asked, 3 used, 1 free"


def test_unknown_capacity_is_no_limit_and_what_does_not_grow_is_not_refused() -> None:
    check_capacity("oslo", CloudletStatus(memory=10), ResourceAmounts(100, 9), ResourceAmounts(100, 1), NOTHING)
    check_capacity("oslo", CloudletStatus(cores=4), ResourceAmounts(9), ResourceAmounts(2), ResourceAmounts(2))
    assert excess_text(CloudletStatus(), ResourceAmounts(1e6, 10**15)) == ""
    assert excess_text(CloudletStatus(cores=1), ResourceAmounts(2, 5)) == "clusters take 2 of 1 cores"


@given(limit=st.integers(1, 64), each=st.sampled_from([0.1, 0.25, 0.3, 0.5, 1.0, 1.5]))
def test_equal_clusters_fit_exactly_as_often_as_the_limit_has_room(limit: int, each: float) -> None:
    used, fitting = 0.0, 0
    while True:
        try:
            check_capacity("oslo", CloudletStatus(cores=limit), ResourceAmounts(used), ResourceAmounts(each), NOTHING)
        except CapacityExceeded:
            break
        used, fitting = used + each, fitting + 1
    assert fitting == int(limit / each + 1e-6)
