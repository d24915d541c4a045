"""Pairs of actions of each domain, on two servers with one store: no order of their awaits breaks a rule.

The suite walks some pairs, and `make pairs` walks all of them at `POINTS` awaits each.
"""

import os
from itertools import product
from random import Random

import pytest

from stateward.errors import BadInput
from tests.simulation.domains import CASES
from tests.simulation.pairs import explore_pair

SHORT_POINTS, POINTS = 2, int(os.environ.get("POINTS", "4"))
SHORT = [(name, *pair) for name, case in CASES.items() for pair in case.pairs]


def all_pairs() -> list[tuple[str, str, str]]:
    """Return all pairs of actions of each domain."""
    found = []
    for name, case in CASES.items():
        opened = case(lambda: 0.0, Random)
        found += [(name, first, second) for first, second in product(opened.actions, repeat=2)]
        opened.close()
    return found


@pytest.mark.parametrize(("name", "first", "second"), SHORT)
def test_pair_of_actions_breaks_no_rule_in_any_order(name: str, first: str, second: str) -> None:
    assert explore_pair(CASES[name], first, second, SHORT_POINTS, ways=["pause"]).points > SHORT_POINTS


@pytest.mark.long
@pytest.mark.parametrize(("name", "first", "second"), all_pairs())
def test_each_pair_of_actions_breaks_no_rule_in_any_order(name: str, first: str, second: str) -> None:
    try:
        explore_pair(CASES[name], first, second, POINTS)
    except BadInput as refused:
        pytest.skip(str(refused))
