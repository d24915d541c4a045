"""Run many simulated worlds: `python -m tests.simulation --seeds 1000`; `--seed 7` replays one with all its events.

Each seed gives a world of the engine, and one of a domain with its real handlers, each domain in turn; with
`--world edge`, only one of that domain.
"""

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain

from stateward.testing.simulated_world import WorldOutcome
from tests.simulation.domain_world import simulate_domain
from tests.simulation.domains import CASES
from tests.simulation.life import SIZE, simulate

ENGINE = "engine"
LAST = 60  # how many events of a failed run are shown


def main() -> int:
    """Run what was asked for; returns 1 if a world went wrong."""
    options = _options()
    if options.seed is not None:
        outcomes = _simulate(options.world, options.seed, print)
        print("\n".join(map(_summary, outcomes)))
        return int(any(outcome.wrong is not None for outcome in outcomes))
    return _many(options.world, range(options.start, options.start + options.seeds), options.jobs)


def _simulate(world: str | None, seed: int, listener: Callable[[str], None] | None = None) -> list[WorldOutcome]:
    outcomes, names = [], list(CASES)
    if world in (None, ENGINE):
        outcomes.append(simulate(seed, SIZE, listener))
    if world != ENGINE:
        outcomes.append(simulate_domain(seed, CASES[world or names[seed % len(names)]], listener=listener))
    return outcomes


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay this one, and show everything")
    parser.add_argument("--world", choices=(ENGINE, *CASES), help="only worlds of this kind")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    return parser.parse_args()


def _many(world: str | None, seeds: range, jobs: int) -> int:
    begun, commits, operations, effects, done = time.monotonic(), 0, 0, 0, 0
    with ProcessPoolExecutor(jobs) as pool:
        for outcome in chain.from_iterable(pool.map(partial(_simulate, world), seeds, chunksize=4)):
            done += 1
            commits += outcome.commits
            operations += outcome.operations
            effects += outcome.effects
            if outcome.wrong is not None:
                print("\n".join(outcome.events[-LAST:]))
                print(_summary(outcome))
                pool.shutdown(cancel_futures=True)
                return 1
            if done % 50 == 0 or done == (1 if world else 2) * len(seeds):
                seconds = time.monotonic() - begun
                print(f"{done} worlds, {operations} operations, {effects} effects, {commits} commits, {seconds:.1f} s")
                sys.stdout.flush()
    return 0


def _summary(outcome: WorldOutcome) -> str:
    fate = "all is well" if outcome.wrong is None else f"WRONG: {outcome.wrong}"
    figures = f"{outcome.operations} operations, {outcome.commits} commits, {outcome.seconds:.0f} virtual seconds"
    return f"seed {outcome.seed}: {fate} ({figures}; digest {outcome.digest})"


if __name__ == "__main__":
    sys.exit(main())
