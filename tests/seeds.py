"""The seed of what tests leave to chance: printed, so that a run that failed can be repeated with TEST_SEED=SEED."""

import os
import sys
from random import Random
from secrets import randbelow

VARIABLE = "TEST_SEED"


def new_seed() -> int:
    """Return the seed of this run: that of the environment, or a new one, which processes that it starts inherit."""
    seed = int(os.environ.setdefault(VARIABLE, str(randbelow(10**6))))
    print(f"seed: {VARIABLE}={seed}", file=sys.stderr, flush=True)  # noqa: T201 - shown with a failure
    return seed


def chance(name: str) -> Random:
    """Return the chance of one part of this run; parts with different names differ."""
    return Random(f"{new_seed()}/{name}")
