"""`python -m bench [NAME...]`: run the benchmarks, all of them or those named, and keep and write what they found.

`python -m bench compare [NAME...]` runs them and compares instead (`--with FILE` takes what is kept there for what was
found now), and fails if a ratio has become worse by more than a fifth. `python -m bench page` only writes the page.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter

from bench import kept as keeping
from bench import page
from bench.figures import Figure
from bench.kept import Kept, Run, changes, circumstances
from stateward.errors import UnknownName

NAMES = (
    "decide",
    "memory",
    "explore",
    "engine.throughput",
    "engine.group",
    "engine.latency",
    "engine.growth",
    "engine.limits",
    "engine.recovery",
    "server",
    "console",
    "command_line",
    "mci",
    "containers",
    "systems",
    "systems_containers",
    "leases",
    "ovc",
    "edge",
    "edge_containers",
)
COMPARE, PAGE = "compare", "page"


def main(words: Sequence[str]) -> None:
    asked = _arguments(words)
    if asked.names[:1] == [PAGE]:
        page.write(keeping.load(asked.store))
    elif asked.names[:1] == [COMPARE]:
        compare(asked.names[1:], asked.store, asked.found)
    else:
        measure(asked.names, asked.store)


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{COMPARE}, {PAGE}, or any of: {', '.join(NAMES)}")
    parser.add_argument("--store", type=Path, default=keeping.FILE, help="where figures are kept")
    parser.add_argument("--with", dest="found", type=Path, help="compare what is kept there, and run nothing")
    return parser.parse_args(words)


def measure(names: Sequence[str], store: Path) -> None:
    """Run, and keep what was found, one benchmark after the other: what is found is kept even if a later one fails."""
    for name, run in _runs(names):
        runs = keeping.load(store).with_run(name, run).runs
        found = Kept({one: runs[one] for one in NAMES if one in runs})
        keeping.save(found, store)
        if store == keeping.FILE:
            page.write(found)


def compare(names: Sequence[str], store: Path, found: Path | None) -> None:
    """Run again, or take what another run found, and fail if a ratio is worse than the kept one."""
    now = keeping.load(found) if found else Kept(dict(_runs(names)))
    if names:
        now = Kept({name: run for name, run in now.runs.items() if name in names})
    compared = list(changes(keeping.load(store), now))
    for change in compared:
        print(change)
    worse = sum(change.worse for change in compared)
    print(f"{len(compared)} ratios compared, {worse} worse by more than a fifth")
    if worse:
        sys.exit(1)


def _runs(names: Sequence[str]) -> Iterator[tuple[str, Run]]:
    for name in names:
        if name not in NAMES:
            sys.exit(str(UnknownName("benchmark", name, NAMES)))
    for name in names or NAMES:
        yield name, _run(name)


def _run(name: str) -> Run:
    """Run a benchmark; prints what it reports."""
    where, began = circumstances(name), perf_counter()
    lines = list(import_module(f"bench.{name}").report())
    for line in lines:
        print(line)
    print(f"  ({name} took {perf_counter() - began:.1f} s)\n", flush=True)
    return Run(where, tuple(line for line in lines if isinstance(line, Figure)))


if __name__ == "__main__":
    main(sys.argv[1:])
