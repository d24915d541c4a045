"""Back-off: it doubles, it has a ceiling, it never vanishes, and chance spreads it."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from stateward.engine.pacing import FIRST, LONGEST, back_off


class Dice(Random):
    """Chance that always falls the same way."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def random(self) -> float:
        return self.value


HIGHEST, LOWEST = Dice(1.0), Dice(0.0)


def test_the_ceiling_doubles_with_each_attempt() -> None:
    assert [back_off(attempt, HIGHEST) for attempt in (1, 2, 3, 4)] == [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST]


def test_it_never_grows_beyond_the_longest() -> None:
    assert back_off(1000, HIGHEST) == LONGEST


def test_the_unlucky_wait_half_of_the_ceiling_at_least() -> None:
    assert back_off(3, LOWEST) == 2 * FIRST


def test_first_and_longest_can_be_chosen() -> None:
    assert back_off(1, HIGHEST, first=0.05, longest=2.0) == 0.05
    assert back_off(99, HIGHEST, first=0.05, longest=2.0) == 2.0


@given(st.integers(1, 10_000), st.integers())
def test_it_lies_between_half_of_the_ceiling_and_the_ceiling(attempt: int, seed: int) -> None:
    ceiling = back_off(attempt, HIGHEST)
    assert ceiling / 2 <= back_off(attempt, Random(seed)) <= ceiling <= LONGEST


def test_two_who_failed_together_do_not_come_back_together() -> None:
    chance = Random(1)
    assert len({back_off(5, chance) for _ in range(100)}) > 90
