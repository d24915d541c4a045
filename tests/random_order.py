"""A random order of tests, by the seed in ORDER_SEED: `make flake` sets it.

Files are shuffled, and the tests in each. Tests of one file stay together, because they share what the file sets up.
"""

import os
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest


def shuffle(items: list[pytest.Item]) -> None:
    """Shuffle the tests, if there is a seed."""
    seed = os.environ.get("ORDER_SEED")
    if not seed:
        return
    chance, by_file = Random(seed), defaultdict[Path, list[pytest.Item]](list)
    for item in items:
        by_file[item.path].append(item)
    files = list(by_file.values())
    chance.shuffle(files)
    for tests in files:
        chance.shuffle(tests)
    items[:] = [item for tests in files for item in tests]
