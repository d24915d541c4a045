"""Fixtures of all tests: a real PostgreSQL, Podman and Nova for those that ask for them."""

import gc
import os

import pytest
from hypothesis import settings

from stateward.aio.open_files import raise_open_file_limit
from tests.containers import needs_podman, podman
from tests.integration.drivers.openstack.nova_server import nova_server
from tests.left_sockets import pytest_runtest_setup, pytest_runtest_teardown
from tests.long_forms import shorten_second_parts
from tests.poolers import pgbouncer
from tests.random_order import shuffle
from tests.route_signatures import parse_signatures_once
from tests.servers import postgres_server
from tests.skip_summary import pytest_terminal_summary
from tools.reaper import restore_signals

# How long an example takes depends on what else the machine does: no test is to fail by that.
# The suite tries a quarter of the examples, `make prove` all of them.
settings.register_profile("suite", deadline=None, max_examples=25)
settings.register_profile("prove", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

gc.disable()  # until all tests are known: they are no garbage, and to look for some takes a fifth of the time

parse_signatures_once()
restore_signals()
raise_open_file_limit()  # a test may hold a thousand connections

__all__ = [
    "needs_podman",
    "nova_server",
    "pgbouncer",
    "podman",
    "postgres_server",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
    "pytest_terminal_summary",
]


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases that are like others, and shuffle the rest if there is a seed.

    Tests that need Nova come last, so that one process of the suite runs all of them: each start takes half a minute.
    """
    shorten_second_parts(items, config.rootpath)
    items.sort(key=lambda item: "nova_server" in getattr(item, "fixturenames", ()))
    shuffle(items)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collect garbage from now on, but not among the tests, and seldom: most of what a test makes is no garbage yet."""
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()
