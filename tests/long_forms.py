"""Cases of a test that the suite leaves out, because others of the same test are like them: `make prove` runs them."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import product
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")


def in_long_form(values: Iterable[T], *, short: Collection[T]) -> list[object]:
    """Return the values as cases; only those of the short form are in the suite."""
    return [one if one in short else pytest.param(one, marks=pytest.mark.long) for one in values]


def examples(most: int) -> int:
    """Return how many examples a property tries: a quarter of the most in the suite, all of them in `make prove`."""
    return most * settings().max_examples // 100


class SecondPart(NamedTuple):
    """A part that cases run on as well as on a first one: in the suite, one in `every` does, or none."""

    name: str
    first: str
    every: int
    places: tuple[str, ...]


SECOND_PARTS = (
    # Whether a store keeps its promises is tested by its own tests, all on both.
    SecondPart("postgres", "sqlite", 8, ("tests/integration/domains", "tests/integration/server")),
    SecondPart("postgres", "sqlite", 24, tuple(f"tests/integration/domains/{one}" for one in ("mci", "ovc", "leases"))),
    SecondPart("postgres", "sqlite", 4, ("tests/integration/engine",)),
    SecondPart(
        "postgres", "sqlite", 0, ("tests/integration/server/test_schemathesis.py",)
    ),  # test_fuzz_domains.py does
    SecondPart("postgres", "sqlite", 0, ("tests/integration/domains/ovc/test_reference.py",)),  # test_crashes.py does
    SecondPart("model", "sqlite", 4, ("tests/contract",)),
    SecondPart("aarch64", "x86_64", 4, ("tests/contract/drivers/test_qemu.py", "tests/integration/domains/ovc")),
)


def shorten_second_parts(items: Iterable[pytest.Item], root: Path) -> None:
    """Leave most cases on a second part to the long form, where the same one runs on the first part."""
    by_file = defaultdict[Path, dict[str, pytest.Item]](dict)
    for item in items:
        by_file[item.path][item.nodeid] = item
    for part, (path, found) in product(SECOND_PARTS, by_file.items()):
        if any(path.is_relative_to(root / place) for place in part.places):
            second = [item for name, item in found.items() if _on_first(part, name) in found.keys() - {name}]
            for number, item in enumerate(second):
                if not part.every or number % part.every:
                    item.add_marker(pytest.mark.long)


def _on_first(part: SecondPart, name: str) -> str:
    test, _, case = name.partition("[")
    return f"{test}[{case.replace(part.name, part.first)}"
