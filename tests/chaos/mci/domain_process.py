"""The mci domain as a process of its own: it makes one MCI, says what happens, and dies where it is told to.

python -m tests.chaos.mci.domain_process FOLDER

Each line of its input begins a life, `[--die POINT] [--go-on]`, in a process of its own: forked, so that what is
imported need not be imported again. FOLDER holds `plan.json`, the store and the machines; the next life goes on there.
"""

# real time: kills and pauses come at times that a seed draws; each outcome is judged, none is expected
import argparse
import asyncio
import logging
import os
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from stateward.domains.mci.handlers import mci_handlers
from stateward.domains.mci.handlers.post_commands import PostCommandResults, run_post_commands
from stateward.domains.mci.lifecycle import MCI
from stateward.domains.mci.model import CloudConnection, ImageRecord, MciSpec, SpecRecord
from stateward.domains.mci.provider import provider_client
from stateward.domains.mci.runtime import MciRuntime
from stateward.drivers import Driver, Meter, ProviderRegion
from stateward.drivers.builtin_drivers import with_folder
from stateward.drivers.process import ProcessDriver
from stateward.drivers.qemu import QemuDriver
from stateward.engine import AlreadyExists, Denied, Engine
from stateward.lifecycle import TRANSITIONAL
from stateward.plugin.runtime import ProcessContext
from stateward.schemas.caller import Caller
from stateward.store import open_store

NS = "default"
ANN = Caller("user", "ann")
LEASE = 2.0
"""How long the next life waits for the former one, where it cannot know that it is alone."""

ON_HOST = {"process": ProcessDriver, "qemu": QemuDriver}


class Plan(Struct):
    """What is to be made, and of what."""

    mci: MciSpec
    connections: list[CloudConnection] = []
    specs: list[SpecRecord] = []
    images: list[ImageRecord] = []
    store: str = ""  # where it is; empty: in the folder


def say(*words: object) -> None:
    """Tell whoever has started this."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class Death:
    """Waits at one point."""

    def __init__(self, point: str) -> None:
        self._point = point

    def at(self, point: str) -> None:
        """Come by a point: the process is gone here and now, if it is the one."""
        say("at", point)
        if point == self._point:
            os.kill(os.getpid(), signal.SIGKILL)


class Mortal:
    """A driver whose process may die right before a call, and right after it."""

    def __init__(self, driver: Driver, death: Death) -> None:
        self._driver, self._death = driver, death

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._driver, name)
        return self._guarded(name, found) if name in ("ensure", "create", "act") else found

    def _guarded(self, name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def guarded(*asked: Any) -> Any:
            self._death.at(f"{name} sent")
            answer = await call(*asked)
            self._death.at(f"{name} answered")
            return answer

        return guarded


def make_mortal(plugin: MciRuntime, death: Death) -> None:
    """Let every driver and every post-command be a place to die at."""
    make = plugin.drivers.make

    def made(name: str, provider_region: ProviderRegion, meter: Meter = lambda _: None) -> Driver:
        if name not in ON_HOST:
            return Mortal(make(name, provider_region, meter), death)
        driver: Driver = ON_HOST[name](with_folder(plugin.drivers.setup(name, provider_region, meter)), meter, death.at)
        return Mortal(driver, death)

    async def commanded(*asked: Any) -> PostCommandResults:
        death.at("post-command sent")
        ran = await run_post_commands(*asked)
        death.at("post-command answered")
        return ran

    plugin.drivers.make = made  # type: ignore[method-assign]
    mci_handlers.run_post_commands = commanded  # type: ignore[assignment, attr-defined]


async def ask(plugin: MciRuntime, plan: Plan) -> None:
    """Ask for what the plan says, unless it was asked for before."""
    for connection in plan.connections:
        await plugin.service.add_connection(connection, ANN)
    registered: list[SpecRecord | ImageRecord] = [*plan.specs, *plan.images]
    for one in registered:
        with suppress(AlreadyExists):
            await plugin.service.register(NS, one, ANN)
    with suppress(AlreadyExists):
        await plugin.service.create(NS, plan.mci, ANN)


async def follow(engine: Engine, death: Death, name: str) -> None:
    """Tell what is journaled; every line is a place to die at."""
    async for line in engine.watch(0):
        if line.target is not None and line.kind.startswith("mci.") and line.object.startswith((name, "vNet")):
            death.at(f"{line.kind} {line.target}")


async def until_it_rests(plugin: MciRuntime, name: str, *, go_on: bool) -> None:
    """Wait until the MCI is at rest, and let it go on where it holds."""
    while True:
        found = await plugin.service.mci(NS, name)
        if MCI.state(found.state).state_class is not TRANSITIONAL:
            say("rests", found.state)
            return
        if go_on and found.state == "Prepared":
            with suppress(Denied):
                await plugin.service.continue_or_withdraw(NS, name, "continue", ANN)
        await asyncio.sleep(0.02)


async def live(folder: Path, options: argparse.Namespace) -> None:
    """Make an MCI, or go on with it."""
    provider_client.ABSENT_AFTER_S = 0.2
    plan = msgspec.json.decode((folder / "plan.json").read_bytes(), type=Plan)
    death = Death(options.die)
    plugin = MciRuntime(ProcessContext(folder), tick=0.02, every=3600.0)
    make_mortal(plugin, death)
    engine = Engine(
        open_store(plan.store or str(folder / "stateward.db"), migrate=True),
        plugin.kinds,
        lease_s=LEASE if plan.store else 15.0,
    )
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=True):
        following = asyncio.create_task(follow(engine, death, plan.mci.name))
        await ask(plugin, plan)
        await until_it_rests(plugin, plan.mci.name, go_on=options.go_on)
        following.cancel()


def begin(folder: Path, line: str) -> int:
    """Begin a life; returns the number of its process."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        asyncio.run(live(folder, parser().parse_args(shlex.split(line))))
        code = 0
    except Exception:
        logging.exception("this life has ended badly")
    finally:
        os._exit(code)


def parser() -> argparse.ArgumentParser:
    """Return what can be said about a life."""
    found = argparse.ArgumentParser()
    found.add_argument("--die", default="")
    found.add_argument("--go-on", action="store_true")
    return found


if __name__ == "__main__":
    for order in sys.stdin:
        life = begin(Path(sys.argv[1]), order)
        say("begun", life)
        _, status = os.waitpid(life, 0)
        say("ended", os.waitstatus_to_exitcode(status))
