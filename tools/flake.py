"""Run the test suite many times, in random order and under load, and list every test that ever failed with its seed.

    python -m tools.flake --runs 10 [--seed 1] [--load "one core"] [--folder build/flake] [PYTEST ARGUMENT...]

Every second run is under load: on one core, or next to busy loops. Nothing is retried: what fails once is listed.
A seed gives the order of files and of the tests in them, what tests leave to chance, and the hashes of strings, so
`--runs 1 --seed SEED --load LOAD` repeats a run as far as anything can. The output of each run is kept in the folder.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ONE_CORE, BUSY_LOOPS, NO_LOAD = "one core", "busy loops", "no load"
LOADS = (NO_LOAD, ONE_CORE, NO_LOAD, BUSY_LOOPS)
"""The loads of the runs, in turn."""

BUSY = "while True: pass"
SUITE = (
    "-m",
    "tools.reaper",
    "--in-memory",
    sys.executable,
    "-m",
    "pytest",
    "--numprocesses",
    "4",
    "--dist",
    "worksteal",
)
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)


def main() -> None:
    """Run the suite as often as the command line says; exits with 1 if a test has ever failed."""
    options, arguments = _parser().parse_known_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[str]] = {}
    for number in range(options.runs):
        seed, load = options.seed + number, options.load or LOADS[number % len(LOADS)]
        failed = run_once(seed, load, arguments, options.folder / f"seed-{seed}.log")
        for test in failed:
            found.setdefault(test, []).append(f"seed {seed}, {load}")
        print(f"run {number + 1} of {options.runs}, seed {seed}, {load}: {len(failed)} failed", flush=True)
    for test, runs in sorted(found.items(), key=lambda one: -len(one[1])):
        print(f"{test}: {len(runs)} of {options.runs} ({'; '.join(runs)})")
    sys.exit(bool(found))


def run_once(seed: int, load: str, arguments: Sequence[str], log: Path) -> list[str]:
    """Run the suite once, and return the tests that failed."""
    environ = {**os.environ, "ORDER_SEED": str(seed), "TEST_SEED": str(seed), "PYTHONHASHSEED": str(seed % 2**32)}
    cores = os.sched_getaffinity(0)
    began = time.monotonic()
    with log.open("wb") as output, _busy_loops(2 * len(cores) if load == BUSY_LOOPS else 0):
        if load == ONE_CORE:
            os.sched_setaffinity(0, {min(cores)})  # its processes inherit it
        try:
            done = subprocess.run(
                [sys.executable, *SUITE, *arguments], cwd=ROOT, env=environ, stdout=output, stderr=subprocess.STDOUT
            )
        finally:
            os.sched_setaffinity(0, cores)
        output.write(f"\n{time.monotonic() - began:.0f} s, exit status {done.returncode}\n".encode())
    failed = failures(log.read_text("utf-8", "replace"))
    return failed or ([f"(the run itself ended with {done.returncode})"] if done.returncode else [])


def failures(output: str) -> list[str]:
    """Return the tests that the summary of a run lists as failed."""
    return sorted(set(FAILED.findall(output)))


@contextmanager
def _busy_loops(number: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for one in loops:
            one.kill()
            one.wait()


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m tools.flake", description=__doc__)
    found.add_argument("--runs", type=int, default=10)
    found.add_argument("--seed", type=int, default=1, help="of the first run; each next one has the next seed")
    found.add_argument("--load", choices=sorted(set(LOADS)), help="of all runs, instead of each in turn")
    found.add_argument("--folder", type=Path, default=ROOT / "build" / "flake")
    return found


if __name__ == "__main__":
    main()
