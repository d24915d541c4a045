"""Every interleaving of leases, cuts, pauses, kills and moves: an instance of a node that was lost never runs twice."""

import pytest
from msgspec.structs import replace

from stateward.testing.protocols import Bounds, explore
from tests.models.node_lease import NOT_DOUBLED, Faults, Rules, protocol

BOUNDS = Bounds(states=3_000_000)
NONE = Faults(pauses=0, kills=0, cuts=0, restarts=0, skips=0, breaks=1)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(replace(NONE, skips=1, pauses=1), marks=pytest.mark.long),
        replace(NONE, skips=1, cuts=1),
        pytest.param(replace(NONE, skips=1, kills=1, restarts=1), marks=pytest.mark.long),
        pytest.param(replace(NONE, skips=1, pauses=1, cuts=1), marks=pytest.mark.long),
    ],
    ids=["pause", "cut", "kill and restart", "pause and cut"],
)
def test_the_instance_of_a_lost_node_never_runs_twice(faults: Faults) -> None:
    found = explore(protocol(Rules(), faults), bounds=BOUNDS)
    assert found.violation is None, str(found.violation)
    assert found.complete


@pytest.mark.parametrize(
    "rules",
    [
        Rules(margin=0),
        Rules(stores_before_answer=False),
        Rules(loss_ends_connections=False),
        Rules(settles_after_welcome=False),
        Rules(has_watchdog=False),
        Rules(counts_from_sending=False),
    ],
    ids=["margin", "store first", "loss ends connections", "settle", "watchdog", "count from sending"],
)
def test_each_part_of_the_fence_is_needed(rules: Rules) -> None:
    found = explore(protocol(rules, replace(NONE, skips=1)), bounds=BOUNDS)
    assert found.violation is not None
    assert NOT_DOUBLED in str(found.violation)
