"""Worlds of leases: no commit shows a forbidden combination or a host promised twice, and all comes to rest."""

import pytest

from tests.long_forms import in_long_form
from tests.simulation.leases import simulate

WORLDS = 12


@pytest.mark.parametrize("seed", in_long_form(range(WORLDS), short=range(3)))
def test_a_world_of_leases_breaks_no_rule_and_comes_to_rest(seed: int) -> None:
    outcome = simulate(seed)
    assert outcome.wrong is None, "\n".join(outcome.events[-200:])
    assert {"ACTIVE", "UPDATING", "TERMINATED", "DELETING", "(gone)"} <= outcome.statuses
