"""Fault isolation: the error of one object does not affect the others, and is logged at growing intervals."""

import logging

import pytest

from stateward.aio.backoff import INITIAL_INTERVAL_S
from stateward.engine.troubles import FaultIsolation
from stateward.store.errors import Unavailable

LOG = logging.getLogger("stateward.tests")


def fail(faults: FaultIsolation, subject: str) -> None:
    with faults.isolate(subject):
        raise ValueError("broken")


def test_an_error_with_one_object_ends_only_that_and_is_logged_at_growing_distance(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    faults = FaultIsolation(LOG, lambda: now[0])
    for now[0] in (0.0, 1.0, INITIAL_INTERVAL_S, INITIAL_INTERVAL_S + 1, 3 * INITIAL_INTERVAL_S):
        fail(faults, "one")
    fail(faults, "two")
    logged = [line.getMessage() for line in caplog.records]
    text = "{} has failed; it is tried again in the next round"
    assert logged == [text.format("one")] * 3 + [text.format("two")]


def test_an_error_of_the_store_concerns_all_and_is_raised() -> None:
    with pytest.raises(Unavailable), FaultIsolation(LOG).isolate("one"):
        raise Unavailable("gone")
