"""Rehearse scale-out with failover: `python -m tests.rehearsal`, or `--short` for one failover."""

import argparse
import asyncio
import shutil
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

from msgspec.structs import replace

from tests.rehearsal.faults import ALL, KILL
from tests.rehearsal.network import OneHost, enter_own_network, hosts
from tests.rehearsal.rehearsal import Plan, Rehearsal
from tests.rehearsal.required_programs import missing, why_not_separable

SHORT = Plan((KILL,), pause=5.0, fresh=20, heals=False, yard=False)
LONG = Plan(ALL)
ABSENT = 3
"""The exit code if a program is not installed."""


async def main(options: argparse.Namespace) -> int:
    """Run the rehearsal, and print the faults that were found."""
    began, plan = time.time(), SHORT if options.short else LONG
    if options.only:
        plan = replace(plan, faults=tuple(one for one in ALL if options.only in one.about))
    if options.agents:
        plan = replace(plan, agents=options.agents, pause=plan.pause * options.agents / plan.agents)
    folder = Path(options.folder or mkdtemp(prefix="stateward-rehearsal-"))

    def say(words: str) -> None:
        print(f"[{time.time() - began:6.1f} s] {words}", flush=True)

    if options.one_host:
        network = OneHost()
        rehearsal = Rehearsal(plan, folder, network, say)
        network.still = rehearsal.cluster.pause_node
        say(network.about)
        faults = await rehearsal.run()
    else:
        with hosts() as namespaces:
            say(namespaces.about)
            faults = await Rehearsal(plan, folder, namespaces, say).run()
    say(f"{len(faults)} faults" if faults else "nothing accepted was lost, and nothing was done twice")
    print("\n".join(faults[:40]))
    if options.folder:
        print(f"the ledgers and logs are in {folder}")
    else:
        print("the ledgers and logs are removed; --folder keeps them")
        shutil.rmtree(folder)
    return 1 if faults else 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(prog="python -m tests.rehearsal")
    found.add_argument("--short", action="store_true", help="one failover only")
    found.add_argument("--agents", type=int, help="so many agents, under as many requests as all others would have")
    found.add_argument("--only", metavar="WORDS", help="only the faults whose description has these words")
    found.add_argument("--one-host", action="store_true", help="no network of its own, also where that is possible")
    found.add_argument("--folder", help="where to leave the database, the ledgers and the logs")
    return found


if __name__ == "__main__":
    given = parser().parse_args()
    if missing():
        print(missing())
        sys.exit(ABSENT)
    if why_not_separable() and not given.one_host:
        print(f"no network can be cut here: {why_not_separable()}")
        given.one_host = True
    if not given.one_host:
        enter_own_network()
    sys.exit(asyncio.run(main(given)))
