"""Back-off: it doubles, it has a ceiling, it never vanishes, and chance spreads it."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from stateward.aio.backoff import INITIAL_DELAY_S, MAX_DELAY_S, backoff_delay


class Dice(Random):
    """Chance that always falls the same way."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def random(self) -> float:
        return self.value


HIGHEST, LOWEST = Dice(1.0), Dice(0.0)


def test_the_ceiling_doubles_with_each_attempt() -> None:
    assert [backoff_delay(attempt, HIGHEST) for attempt in (1, 2, 3, 4)] == [
        INITIAL_DELAY_S,
        2 * INITIAL_DELAY_S,
        4 * INITIAL_DELAY_S,
        8 * INITIAL_DELAY_S,
    ]


def test_it_never_grows_beyond_the_longest() -> None:
    assert backoff_delay(1000, HIGHEST) == MAX_DELAY_S


def test_the_unlucky_wait_half_of_the_ceiling_at_least() -> None:
    assert backoff_delay(3, LOWEST) == 2 * INITIAL_DELAY_S


def test_first_and_longest_can_be_chosen() -> None:
    assert backoff_delay(1, HIGHEST, first=0.05, longest=2.0) == 0.05
    assert backoff_delay(99, HIGHEST, first=0.05, longest=2.0) == 2.0


@given(st.integers(1, 10_000), st.integers())
def test_it_lies_between_half_of_the_ceiling_and_the_ceiling(attempt: int, seed: int) -> None:
    ceiling = backoff_delay(attempt, HIGHEST)
    assert ceiling / 2 <= backoff_delay(attempt, Random(seed)) <= ceiling <= MAX_DELAY_S


def test_two_who_failed_together_do_not_come_back_together() -> None:
    chance = Random(1)
    assert len({backoff_delay(5, chance) for _ in range(100)}) > 90
