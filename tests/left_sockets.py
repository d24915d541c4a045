"""Sockets that a test leaves open are reported by that test, not by the one during which they are found.

Python reports a socket that nobody closed when it is collected, which may be many tests later. To collect garbage after
each test takes too long; so it's done only after tests at whose end the process has more sockets than at their start.
"""

import gc
import os
from contextlib import suppress

import pytest
from _pytest.unraisableexception import collect_unraisable

OPEN_FILES = "/proc/self/fd"
AT_START = pytest.StashKey[int]()


def count_sockets() -> int:
    """Count the open sockets of this process; with `Path`, it takes three times as long, before and after each test."""
    found = 0
    for one in os.listdir(OPEN_FILES):  # noqa: PTH208
        with suppress(OSError):  # that of this listing is closed by now
            found += os.readlink(f"{OPEN_FILES}/{one}").startswith("socket:")  # noqa: PTH115
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Count the sockets before anything is set up."""
    item.stash[AT_START] = count_sockets()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Collect what the test may have left, and report it."""
    if count_sockets() > item.stash.get(AT_START, 0):
        gc.collect()
        collect_unraisable(item.config)
        gc.freeze()  # what is left is no garbage: modules, most of it, at which the next collection need not look again
