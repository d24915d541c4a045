"""A year in an hour: what a server takes up depends on what exists, and not on what has been.

A server lives in virtual time under a steady load, and is measured twice at rest, early and late. What has grown must
be in `GROWS`, with its reason. `make year` runs it.
"""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import process_time

import pytest

from tests.growth.year import Figures, live
from tests.long_forms import in_long_form

YEAR = int(os.environ.get("DAYS", "60"))  # without `make year`
SHORT = (3, 7)
"""The days after which the server is measured: on the third, the tokens of the first are pruned for the first time."""

FACTOR = 1.1
SLACK = {"rows": 20, "bytes": 64 * 1024, "time series": 5, "memory": 1_000, "containers": 11, "objects": 200}
"""How many more there may be however long it has run: pages that are less full, what was met for the first time."""

GROWS = {
    what: reason
    for reason, all_of_them in {
        "a simulated cloud keeps used keys and descriptions of machines, as the cloud that it stands for does": (
            "containers: stateward.drivers.simulated.region.Region.used_keys",
            "containers: stateward.drivers.simulated.region.Region._builds",
            "objects: stateward.drivers.simulated.machine.MachineTemplate",
        ),
    }.items()
    for what in all_of_them
}
"""What may grow, and why."""


@pytest.mark.timeout(36_000)  # a day takes two or three seconds of processor
@pytest.mark.parametrize("days", in_long_form([SHORT, (max(3, YEAR // 12), YEAR)], short=[]), ids=["short", "long"])
def test_a_server_takes_up_no_more_the_longer_it_lives(days: tuple[int, int], tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:  # here, objects of other tests would be counted
        found, took = fresh.submit(timed, tmp_path, days).result()
    early, late = (found[day] for day in days)
    sys.stdout.write(f"{days[-1]} days in {took:.0f} s; after {days[0]} and {days[1]} days:\n")
    for sort in late:
        sys.stdout.write(f"  {sort}: {sum(early[sort].values()):,} {sum(late[sort].values()):,}\n")
    more = dict(grown(early, late))
    for what, (before, now) in more.items():
        sys.stdout.write(f"  {what}: {before:,} -> {now:,}: {GROWS.get(what, 'WITHOUT A REASON')}\n")
    assert more.keys() <= GROWS.keys()


def timed(folder: Path, days: tuple[int, int]) -> tuple[dict[int, Figures], float]:
    """Return the figures of some days, and the seconds of processor that it took."""
    return live(folder, days[-1], set(days)), process_time()


def grown(early: Figures, late: Figures) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield what there is more of than there was, by itself and of its sort altogether."""
    for sort, slack in SLACK.items():
        for what, now in {**late[sort], "all": sum(late[sort].values())}.items():
            before = early[sort].get(what, 0) if what != "all" else sum(early[sort].values())
            if now > before * FACTOR + slack:
                yield f"{sort}: {what}", (before, now)
