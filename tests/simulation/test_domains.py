"""Worlds of the domains, with their real handlers and guards: no rule is broken, and all comes to rest."""

from itertools import product

import pytest

from tests.long_forms import in_long_form
from tests.simulation.domain_world import simulate_domain
from tests.simulation.domains import CASES

WORLDS = 12
ALL = list(product(CASES, range(WORLDS)))


@pytest.mark.parametrize(
    "world", in_long_form(ALL, short=[one for one in ALL if one[1] < 1]), ids=lambda one: f"{one[0]}-{one[1]}"
)
def test_a_world_of_a_domain_breaks_no_rule_and_comes_to_rest(world: tuple[str, int]) -> None:
    name, seed = world
    outcome = simulate_domain(seed, CASES[name])
    assert outcome.wrong is None, "\n".join(outcome.events[-200:])
    assert outcome.operations > 5


@pytest.mark.parametrize("name", in_long_form(CASES, short=["mci"]))
def test_a_seed_gives_the_same_world_of_a_domain_again(name: str) -> None:
    first, second = (simulate_domain(7, CASES[name], trouble_s=20.0) for _ in range(2))
    assert first == second
