"""The server of the command line tests: one for all tests, and a namespace for each."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.integration.cli.cli_server import CliServer

NUMBERS = count(1)


@pytest.fixture(scope="session")
def one_cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliServer]:
    with CliServer(tmp_path_factory.mktemp("cli")).opened() as cli:
        yield cli


@pytest.fixture
def cli(one_cli: CliServer) -> Iterator[CliServer]:
    """Return the server with an empty namespace, and leave nothing held behind."""
    one_cli.use_namespace(f"t{next(NUMBERS)}")
    one_cli.plant.lanes.clear()
    yield one_cli
    one_cli.do(one_cli.plant.release)
