"""A server for the command line to talk to: one for all tests, and a namespace for each."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.integration.cli.house import House

NUMBERS = count(1)


@pytest.fixture(scope="session")
def one_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with House(tmp_path_factory.mktemp("house")).opened() as house:
        yield house


@pytest.fixture
def house(one_house: House) -> Iterator[House]:
    """Return the house with an empty namespace, and leave nothing held behind."""
    one_house.ns = f"t{next(NUMBERS)}"
    one_house.plant.lanes.clear()
    yield one_house
    one_house.do(one_house.plant.release)
