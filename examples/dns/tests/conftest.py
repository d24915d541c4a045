"""The DNS servers of the tests: a simulated one, and a real one."""

import os
from collections.abc import Iterator

import pytest

from knot_server import KNOTD, KnotServer, running_knot


@pytest.fixture(scope="module")
def knot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnotServer]:
    """Run a real DNS server; without its program, tests are skipped, but never in CI."""
    if KNOTD is None:
        reason = "there is no Knot DNS on this machine: apt-get install knot"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    with running_knot(tmp_path_factory.mktemp("knot")) as server:
        yield server
