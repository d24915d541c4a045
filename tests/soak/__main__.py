"""A soak: `python -m tests.soak --minutes 30 --store postgres`.

Mixed load over all five domains through a real server, with processes killed at random; nothing may leak.
"""

import argparse
import asyncio
import sys
from pathlib import Path
from tempfile import mkdtemp

from tests.seeds import new_seed
from tests.servers import PostgresServer
from tests.soak.soak_run import soak


def main(options: argparse.Namespace) -> int:
    """Run the soak, and print the verdict."""
    seed = options.seed if options.seed is not None else new_seed()
    folder = Path(options.folder or mkdtemp(prefix="stateward-soak-"))
    print(f"store {options.store}, {options.minutes:g} min, seed {seed}, in {folder}", flush=True)
    database = PostgresServer(durable=True).new_database() if options.store == "postgres" else ""
    verdict = asyncio.run(soak(folder, database, options.minutes * 60, seed))
    print(verdict, flush=True)
    return 1 if verdict.faults else 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    found.add_argument("--minutes", type=float, default=30.0)
    found.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    found.add_argument("--seed", type=int)
    found.add_argument("--folder", help="where to leave the data and the logs")
    return found


if __name__ == "__main__":
    sys.exit(main(parser().parse_args()))
