"""Retention of commands: how long the records of ended commands are kept."""

import logging
from contextlib import suppress
from functools import partial
from operator import attrgetter

from stateward.aio.supervise import repeat
from stateward.domains.mci.lifecycle import COMMAND, ENDED_COMMAND
from stateward.engine import Denied, Engine
from stateward.engine.queries import list_all
from stateward.lifecycle import CONTROLLER
from stateward.store.errors import StoreError
from stateward.store.filters import Selector

log = logging.getLogger("stateward.mci")

LANE_GROUP = "commands"
"""The group of the lanes of commands: each namespace has one, so that none keeps the others from running theirs."""

KEPT_COMMANDS, PRUNE_INTERVAL_S = 500, 600.0
"""How many ended commands a namespace keeps, and the time between two prunings."""

ENDED_STATES = tuple(state.word for state in ENDED_COMMAND)


def command_lane(ns: str) -> str:
    """Return the lane of the commands of a namespace."""
    return f"{LANE_GROUP}/{ns}"


async def prune_commands_loop(engine: Engine) -> None:
    """Remove the oldest records of ended commands, for ever."""
    run_once = partial(prune_commands, engine)
    await repeat("retention of commands", run_once, lambda: PRUNE_INTERVAL_S, log, transient=StoreError)


async def prune_commands(engine: Engine, kept: int = KEPT_COMMANDS) -> None:
    """Remove the records of ended commands of each namespace, but the newest."""
    for ns in await engine.store.reader.namespaces():
        await forget_ended_commands(engine, ns, kept)


async def forget_ended_commands(engine: Engine, ns: str, kept: int = 0) -> None:
    """Remove the records of ended commands of a namespace, but the newest."""
    ended = [
        command async for command in list_all(engine.store.reader, Selector(ns, COMMAND.kind, states=ENDED_STATES))
    ]
    for command in sorted(ended, key=attrgetter("created"), reverse=True)[kept:]:
        with suppress(Denied):  # another process was faster
            await engine.act(ns, command.id, "forget", actor=CONTROLLER, version=command.version, seen={})
