"""A client as a process of its own: it asks for actions, and keeps notes that outlive it.

Whatever was asked and not answered before it was killed is asked again, with the same operation's id. With a ledger it
works as well, and does what it asks for itself where nothing speaks against it.

    python -m tests.chaos.client_process STORE NOTES NAME
"""

# real time: kills and pauses come at times that a seed draws; each outcome is judged, none is expected
import argparse
import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

from msgspec.structs import replace

from stateward.engine import Denied, Engine, LockRequest, Request
from stateward.engine.requests import Creation
from stateward.lifecycle import FORCE
from stateward.store import Selector, open_store
from stateward.store.errors import StoreError
from stateward.store.records import Key, Object, Timer
from tests.chaos.crane_kind import CRANE, NS, TREE, YARD_NAME, CraneHandlers, unworked
from tests.chaos.ledger import Ledger
from tests.chaos.notes import Answered, Asked, Notebook, Sort, read_notes
from tests.chaos.ready_signal import announce
from tests.chaos.worker_process import confess
from tests.seeds import chance

STEPS = {"broken": "mend", "lost": "mend", "scrapped": "forget"}
BERTHS = 3
PACE = 0.05


class Client:
    """Asks, writes down, asks again until there is an answer."""

    def __init__(self, engine: Engine, notebook: Notebook, chance: Random, cranes: int, stop: asyncio.Event) -> None:
        self._engine = engine
        self._notebook = notebook
        self._chance = chance
        self._cranes = cranes
        self._stop = stop

    async def catch_up(self, unanswered: list[Asked]) -> None:
        """Ask again for what was never answered, except timers: setting one anew would make it ring again."""
        await asyncio.gather(*(self._answer(one) for one in unanswered if one.sort is not Sort.TIMER))

    async def keep_asking(self) -> None:
        """Ask for one thing after the other."""
        while not self._stop.is_set():
            with suppress(StoreError):
                await self._once()

    async def _once(self) -> None:
        if self._chance.random() < 0.02:
            await self._ask(Sort.GROUP, self._engine.request(NS, YARD_NAME, "load"))
            return
        name = f"crane-{self._chance.randrange(self._cranes)}"
        found = await self._engine.store.reader.object(Key(NS, name))
        sort, request = self._wish(name, found)
        operations = await self._ask(sort, request)
        if operations and self._chance.random() < 0.7:
            with suppress(TimeoutError):
                await self._engine.wait_record(NS, operations[0], 2)
        elif not operations:
            await asyncio.sleep(0.01)

    def _wish(self, name: str, found: Object | None) -> tuple[Sort, Request]:
        ask = self._engine.request
        if found is None or found.removed:
            birth = Creation(CRANE.kind, YARD_NAME)
            return Sort.ACTION, ask(NS, name, "raise", creates=birth)
        if found.state in STEPS:  # a step has no operation, so only an idempotency key makes it repeatable
            request = ask(NS, name, STEPS[found.state])
            return Sort.ACTION, replace(request, key=request.op)
        if self._chance.random() < 0.04:
            return Sort.ACTION, ask(NS, name, "scrap", facts=(FORCE,))
        if self._chance.random() < 0.05:
            return Sort.TIMER, ask(NS, name, "lift")
        if self._chance.random() < 0.2:
            wish = LockRequest(f"/berth/{self._chance.randrange(BERTHS)}", self._chance.choice("SSX"))
            said = {"lock": f"{wish.mode} {wish.path}"}
            return Sort.ACTION, ask(NS, name, "lift", tree=TREE, locks=[wish], wait=True, args=said)
        action = self._chance.choices(("lift", "oil", "dash"), (6, 1, 1))[0]
        return Sort.ACTION, ask(NS, name, action, priority=self._chance.randrange(3))

    async def _ask(self, sort: Sort, request: Request) -> tuple[str, ...]:
        asked = Asked(sort, request)
        self._notebook.write(asked)
        return await self._answer(asked)

    async def _answer(self, asked: Asked) -> tuple[str, ...]:
        while True:
            try:
                answer = Answered(asked.request.op, "accepted", await self._sent(asked))
            except Denied:
                answer = Answered(asked.request.op, "denied")
            except StoreError as error:
                if not error.retry:
                    raise
                if asked.sort is Sort.TIMER:
                    return ()
                await asyncio.sleep(0.05)
                continue
            self._notebook.write(answer)
            return answer.operations

    async def _sent(self, asked: Asked) -> tuple[str, ...]:
        request = asked.request
        if asked.sort is Sort.TIMER:
            due = await self._engine.store.reader.time() + self._chance.random()
            await self._engine.set_timer(
                Timer(request.ns, request.op, due, 0, request.object, request.action, "[]", "{}")
            )
            return ()
        if asked.sort is Sort.GROUP:
            verdict = await self._engine.group(
                request, Selector(NS, kind=CRANE.kind, parent=YARD_NAME), self._engine.request(NS, "", "lift")
            )
            children = tuple(one.op.id for one in verdict.begun)
            return (request.op, *children)
        accepted = await self._engine.submit(request)
        return () if accepted.operation is None else (accepted.operation.id,)


@asynccontextmanager
async def opened(options: argparse.Namespace) -> AsyncIterator[Engine]:
    """Open an engine that only asks, or one that works as well."""
    if options.ledger is None:
        async with Engine(open_store(options.store), unworked(), works=False) as engine:
            yield engine
        return
    ledger = Ledger(options.ledger, options.name)
    kinds = CraneHandlers(ledger, chance(options.name), PACE, punctual=False).kinds()
    async with Engine(
        open_store(options.store), kinds, lease_s=options.lease, slots=20, process=options.name
    ) as engine:
        confession = asyncio.create_task(confess(ledger, options.lease))
        yield engine
        confession.cancel()


async def main(options: argparse.Namespace) -> None:
    """Ask until told to stop, and then until everything asked is answered; a database that is down is waited for."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    announce()
    while True:
        try:
            async with opened(options) as engine:
                client = Client(engine, Notebook(options.notes), chance(options.name), options.cranes, stop)
                await client.catch_up(read_notes(options.notes).unanswered)
                await asyncio.gather(*(client.keep_asking() for _ in range(options.callers)))
                return
        except StoreError as error:
            logging.warning("%s cannot ask: %s", options.name, error)
            if not error.retry:
                raise
            await asyncio.sleep(0.2)


def parser() -> argparse.ArgumentParser:
    """Return what can be said on the command line."""
    found = argparse.ArgumentParser()
    found.add_argument("store")
    found.add_argument("notes", type=Path)
    found.add_argument("name")
    found.add_argument("--ledger", type=Path, help="where to note what it works on; without one, it only asks")
    found.add_argument("--lease", type=float, default=1.5)
    found.add_argument("--callers", type=int, default=16)
    found.add_argument("--cranes", type=int, default=96)
    return found


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(main(parser().parse_args()))
