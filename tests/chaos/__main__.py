"""A long fault injection on each store: `python -m tests.chaos --seconds 300`; on one: `--store postgres --seed 1`."""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from tests.chaos.processes import Site
from tests.chaos.report import judged
from tests.chaos.storm import POSTGRES, SQLITE, Storm
from tests.seeds import VARIABLE, new_seed
from tests.servers import PostgresServer

STORES = ("sqlite", "postgres")


async def main(options: argparse.Namespace) -> int:
    """Let it blow, and say what is left."""
    return max([await _on(store, options) for store in STORES if options.store in (store, None)])


async def _on(store: str, options: argparse.Namespace) -> int:
    seed = options.seed if options.seed is not None else new_seed()
    os.environ[VARIABLE] = str(seed)  # for the processes that it starts
    folder = Path(options.folder or mkdtemp(prefix="stateward-chaos-")) / store
    folder.mkdir(parents=True, exist_ok=True)
    print(f"store {store}, {options.seconds:g} s, seed {seed}, in {folder}", flush=True)
    if store == "sqlite":
        storm = Storm(Site(str(folder / "chaos.db"), folder, options.lease), SQLITE, Random(seed))
    else:
        server = PostgresServer(durable=True)
        storm = Storm(Site(server.new_database(), folder, options.lease), POSTGRES, Random(seed), server)
    await storm.blow(options.seconds)
    report = await judged(storm)
    print(report, flush=True)
    return 1 if report.faults else 0


def parser() -> argparse.ArgumentParser:
    """Return what can be said on the command line."""
    found = argparse.ArgumentParser(prog="python -m tests.chaos")
    found.add_argument("--seconds", type=float, default=60.0)
    found.add_argument("--store", choices=STORES, help="only on this one")
    found.add_argument("--lease", type=float, default=2.0)
    found.add_argument("--seed", type=int)
    found.add_argument("--folder", help="where to leave the ledger, the notes and the logs")
    return found


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parser().parse_args())))
