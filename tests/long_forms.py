"""Cases of a test that the suite leaves out, because others of the same test are like them: `make prove` runs them."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")


def in_long_form(values: Iterable[T], *, short: Collection[T]) -> list[object]:
    """Return the values as cases; only those of the short form are in the suite."""
    return [one if one in short else pytest.param(one, marks=pytest.mark.long) for one in values]


ON_BOTH_STORES = (Path("tests/integration/domains"), Path("tests/integration/server/test_schemathesis.py"))
"""Tests of what stands above the stores: whether a store keeps its promises is tested by its own tests, all on both."""

SHARE_ON_POSTGRES = 4
"""Of so many cases of a file that run on both stores, one runs on PostgreSQL in the suite."""


def shorten_second_store(items: Iterable[pytest.Item], root: Path) -> None:
    """Leave most cases on PostgreSQL to the long form, where the same one runs on SQLite."""
    by_file = defaultdict[Path, dict[str, pytest.Item]](dict)
    for item in items:
        if any(item.path.is_relative_to(root / place) for place in ON_BOTH_STORES):
            by_file[item.path][item.nodeid] = item
    for found in by_file.values():
        second = [item for name, item in found.items() if _on_sqlite(name) != name and _on_sqlite(name) in found]
        for number, item in enumerate(second):
            if number % SHARE_ON_POSTGRES:
                item.add_marker(pytest.mark.long)


def _on_sqlite(name: str) -> str:
    test, _, case = name.partition("[")
    return f"{test}[{case.replace('postgres', 'sqlite')}"
