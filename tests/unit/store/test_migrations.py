"""The numbers of the schema migrations."""

from typing import get_args

import pytest

from stateward.store.migrations import Dialect, migrations


@pytest.mark.parametrize("dialect", get_args(Dialect))
def test_every_migration_has_a_number_of_its_own(dialect: Dialect) -> None:
    versions = [one.version for one in migrations(dialect)]
    assert versions == list(range(1, len(versions) + 1))
