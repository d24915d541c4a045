"""Token buckets: a burst at once, then a rate, and a debt that has to refill."""

import pytest

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
