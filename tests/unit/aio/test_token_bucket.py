"""Token buckets: a burst at once, then a rate, and a debt that has to refill."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.aio.token_bucket import TokenBucket


def test_a_burst_is_there_at_once_and_refills_with_time() -> None:
    bucket = TokenBucket(2.0, 3.0, now=0.0)
    assert [bucket.take(0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert bucket.take(0.4) == pytest.approx(0.1)
    assert bucket.take(0.5) == 0.0
    assert bucket.missing(0.5) == pytest.approx(3.0)


def test_a_debt_is_paid_before_the_next_token() -> None:
    bucket = TokenBucket(1.0, 5.0, now=0.0, max_debt=10.0)
    bucket.overdraw(0.0, 100.0)
    assert bucket.delay_s(0.0, 0.0) == 10.0
    assert bucket.delay_s(4.0) == 7.0


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    bucket = TokenBucket(1.0, 1.0, now=10.0)
    assert bucket.take(5.0) == 0.0


@given(st.lists(st.floats(0, 5), max_size=60), st.floats(0.1, 20), st.integers(1, 20))
def test_no_more_calls_pass_than_the_budget_holds(pauses: list[float], rate: float, burst: int) -> None:
    bucket, now, passed = TokenBucket(rate, burst, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        passed += bucket.take(now) == 0.0
    assert passed <= burst + now * rate + 1e-3


@given(st.floats(0.1, 20))
def test_who_waits_as_long_as_told_gets_through(rate: float) -> None:
    bucket = TokenBucket(rate, 5.0, 0.0)
    bucket.overdraw(0.0, 5.0)
    delay_s = bucket.take(0.0)
    assert delay_s > 0
    assert bucket.take(delay_s) == 0.0
