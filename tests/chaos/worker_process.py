"""A worker as a process of its own. SIGTERM asks it to finish; anything else it has to survive, or its heirs have.

python -m tests.chaos.worker_process STORE LEDGER NAME --lease 1.5
"""

import argparse
import asyncio
import logging
import signal
import time
from pathlib import Path

from stateward.engine import Engine
from stateward.store import open_store
from stateward.store.errors import StoreError
from tests.chaos.crane_kind import CraneHandlers
from tests.chaos.crane_yard import raise_cranes
from tests.chaos.ledger import Ledger, What
from tests.chaos.ready_signal import announce
from tests.seeds import chance

TICK = 0.1


async def main(options: argparse.Namespace) -> None:
    """Work until asked to stop; a database that is not there yet is waited for."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    ledger = Ledger(options.ledger, options.name)
    while not stop.is_set():
        try:
            await _work(options, ledger, stop)
        except StoreError as error:
            logging.warning("%s cannot work: %s", options.name, error)
            if not error.retry:
                raise
            await asyncio.sleep(0.2)


async def _work(options: argparse.Namespace, ledger: Ledger, stop: asyncio.Event) -> None:
    handlers = CraneHandlers(ledger, chance(options.name), options.pace, punctual=options.punctual)
    engine = Engine(
        open_store(options.store), handlers.kinds(), slots=options.slots, lease_s=options.lease, process=options.name
    )
    async with engine:
        confession = asyncio.create_task(confess(ledger, options.lease))
        announce()
        await raise_cranes(engine, range(0, 2 * options.cranes, 2))
        await stop.wait()
        confession.cancel()


async def confess(ledger: Ledger, lease: float) -> None:
    """Tell the witness when this process stood still for long, whoever made it: then others could take it for dead."""
    last = time.time()
    while True:
        await asyncio.sleep(TICK)
        now = time.time()
        if now - last > TICK + lease / 5:
            ledger.note(What.STILL, since=last)
        last = now


def parser() -> argparse.ArgumentParser:
    """Return what can be said on the command line."""
    found = argparse.ArgumentParser()
    found.add_argument("store")
    found.add_argument("ledger", type=Path)
    found.add_argument("name")
    found.add_argument("--lease", type=float, default=1.5)
    found.add_argument("--slots", type=int, default=20)
    found.add_argument("--cranes", type=int, default=0, help="how many to ask for itself, as an embedded program does")
    found.add_argument("--pace", type=float, default=0.05)
    found.add_argument("--punctual", action="store_true")
    return found


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(main(parser().parse_args()))
