from hypothesis import given
from hypothesis import strategies as st

from stateward.server.auth import authenticator
from stateward.server.auth.authenticator import RateLimiter


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Pail:
    """A bucket as one would draw it: a level that rises with time, and falls with each call."""

    def __init__(self, rate: int) -> None:
        self.rate, self.level, self.seen = rate, float(rate), 0.0

    def takes(self, now: float) -> bool:
        self.level = min(self.rate, self.level + (now - self.seen) * self.rate)
        self.seen = now
        if self.level < 1 - 1e-6:
            return False
        self.level -= 1
        return True


@given(
    rate=st.integers(min_value=1, max_value=50),
    pauses=st.lists(st.sampled_from([0.0, 0.001, 0.02, 0.1, 0.5, 3.0]), max_size=200),
)
def test_a_bucket_gives_what_a_pail_would_give(rate: int, pauses: list[float]) -> None:
    clock, pail = Clock(), Pail(rate)
    buckets = RateLimiter(rate, clock)
    for pause in pauses:
        clock.now += pause
        assert (buckets.take("a") == 0) == pail.takes(clock.now)


@given(rate=st.integers(min_value=1, max_value=1000))
def test_who_waits_as_long_as_it_is_told_gets_a_call(rate: int) -> None:
    clock = Clock()
    buckets = RateLimiter(rate, clock)
    while (after := buckets.take("a")) == 0:
        pass
    clock.now += after
    assert buckets.take("a") == 0


def test_each_name_has_a_bucket_of_its_own() -> None:
    buckets = RateLimiter(1, Clock())
    assert (buckets.take("a"), buckets.take("b")) == (0, 0)
    assert buckets.take("a") > 0


def test_full_buckets_are_forgotten_and_empty_ones_are_not() -> None:
    clock = Clock()
    buckets = RateLimiter(1, clock)
    for number in range(authenticator.MAX_KEYS):
        buckets.take(str(number))
    clock.now += 10
    assert buckets.take("busy") == 0
    assert len(buckets._buckets) == 1
    assert buckets.take("busy") > 0


def test_a_bucket_that_is_overdrawn_has_to_fill_first_but_not_for_ever() -> None:
    clock = Clock()
    buckets = RateLimiter(1, clock, 5.0)
    for _ in range(7):
        buckets.overdraw("a")
    assert buckets.delay_s("a") == 3.0
    for _ in range(1000):
        buckets.overdraw("a")
    assert buckets.delay_s("a") <= authenticator.MAX_DEBT_S + 1


def test_buckets_that_are_all_in_use_are_bounded_and_the_emptiest_stay() -> None:
    buckets = RateLimiter(1, Clock(), 5.0)
    for _ in range(5):
        buckets.overdraw("attacker")
    for number in range(3 * authenticator.MAX_KEYS):
        buckets.overdraw(str(number))
    assert len(buckets._buckets) <= authenticator.MAX_KEYS
    assert buckets.delay_s("attacker") > 0
