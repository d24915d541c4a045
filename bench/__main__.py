"""`python -m bench [NAME...]`: run the benchmarks, all of them or those named."""

import sys
from importlib import import_module
from time import perf_counter

from stateward.errors import UnknownName

NAMES = (
    "decide",
    "memory",
    "locks",
    "explore",
    "engine.throughput",
    "engine.group",
    "engine.latency",
    "engine.growth",
    "engine.limits",
    "engine.recovery",
    "server",
    "console",
    "mci",
    "systems",
    "leases",
    "ovc",
    "edge",
)


def main(asked: list[str]) -> None:
    for name in asked:
        if name not in NAMES:
            sys.exit(str(UnknownName("benchmark", name, NAMES)))
    for name in asked or NAMES:
        began = perf_counter()
        for line in import_module(f"bench.{name}").report():
            print(line)
        print(f"  ({name} took {perf_counter() - began:.1f} s)\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
