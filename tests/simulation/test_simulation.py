"""Worlds come to rest, and a seed gives the same world again, in this process and in any other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.long_forms import in_long_form
from tests.simulation.kinds import check_tables
from tests.simulation.life import simulate
from tests.simulation.world import Size

WORLDS = 2
"""Of the engine, and of domains; test_domains.py has two of each domain, and `make simulate` runs 200 of both."""
ROOT = Path(__file__).parents[2]


def outside(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_the_tables_of_the_simulated_world_are_sound() -> None:
    check_tables()


@pytest.mark.timeout(900)
def test_many_worlds_come_to_rest_and_break_no_rule() -> None:
    done = outside("--seeds", str(WORLDS), "--jobs", str(os.cpu_count() or 1))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seed", in_long_form(range(5), short=range(2)))
def test_a_world_comes_to_rest_and_breaks_no_rule(seed: int) -> None:
    outcome = simulate(seed, Size(trouble=15.0))
    assert outcome.wrong is None, "\n".join(outcome.events)


def test_a_seed_gives_the_same_world_again() -> None:
    first, second = simulate(7), simulate(7)
    assert first == second


def test_a_seed_gives_the_same_world_in_a_process_that_hashes_otherwise() -> None:
    here = simulate(11)
    there = outside("--seed", "11", PYTHONHASHSEED="1")  # make runs the tests with 0
    assert f"digest {here.digest}" in there.stdout


def test_other_seeds_give_other_worlds() -> None:
    assert simulate(1).digest != simulate(2).digest
