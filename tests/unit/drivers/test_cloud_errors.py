"""What all drivers of clouds make of an answer with an error, and of its `Retry-After`."""

from email.utils import formatdate
from time import time

import pytest
from msgspec.structs import replace

from stateward.drivers import CallRefused, CallThrottled, CallUnanswered, RefusalReason, TransientFailure
from stateward.drivers.cloud.errors import CloudCallFailed, ErrorTable, NoRefusal, retry_after_s

BY_STATUS = ErrorTable(
    codes={"Full": RefusalReason.CAPACITY, "Later": NoRefusal.NOT_DONE},
    patterns={r"^\S*InUse:": RefusalReason.IN_USE},
    statuses={403: RefusalReason.AUTH},
)
BY_CODE = replace(BY_STATUS, has_codes_in_5xx=True)


@pytest.mark.parametrize(
    ("status", "code", "meaning"),
    [
        (400, "Full", RefusalReason.CAPACITY),
        (403, "Full", RefusalReason.CAPACITY),
        (403, "Other", RefusalReason.AUTH),
        (409, "NicInUse", RefusalReason.IN_USE),
        (400, "Other", RefusalReason.INVALID),
        (301, "Other", RefusalReason.INVALID),
        (409, "Later", TransientFailure),
        (429, "Full", CallThrottled),
        (408, "Other", CallUnanswered),
        (500, "Other", CallUnanswered),
        (200, "Other", CallUnanswered),
    ],
)
def test_codes_patterns_and_statuses_give_the_outcome_in_this_order(status: int, code: str, meaning: object) -> None:
    for table in (BY_STATUS, BY_CODE):
        outcome = table.outcome(status, code, f"{code}: text", reads=False)
        assert (outcome.why if isinstance(outcome, CallRefused) else type(outcome)) == meaning


def test_a_code_outweighs_a_5xx_only_where_the_cloud_uses_it_so() -> None:
    assert isinstance(BY_STATUS.outcome(500, "Full", "Full: text", reads=False), CallUnanswered)
    assert isinstance(BY_CODE.outcome(500, "Full", "Full: text", reads=False), CallRefused)


def test_a_call_that_only_reads_has_done_nothing() -> None:
    assert isinstance(BY_STATUS.outcome(500, "", "text", reads=True), TransientFailure)


def test_a_listing_that_was_throttled_says_how_long_to_wait() -> None:
    outcome = BY_STATUS.outcome(429, "", "slow down", reads=True, retry_after_s=7.0)
    listing = CloudCallFailed("list", "", outcome).listing()
    assert (listing.complete, listing.problem, listing.retry_after_s) == (False, "list: slow down", 7.0)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("3", 3.0),
        ("-1", 0.0),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
    ],
)
@pytest.mark.parametrize("name", ["Retry-After", "retry-after"])
def test_a_time_to_wait_is_read_from_seconds_or_a_date(name: str, written: str, seconds: float | None) -> None:
    assert retry_after_s({name: written}) == seconds
    assert retry_after_s({}) is None


def test_a_date_in_the_future_is_a_time_to_wait() -> None:
    found = retry_after_s({"Retry-After": formatdate(time() + 3600)})
    assert found is not None
    assert 0 < found <= 3600
