"""Keeping calls: those that change something, and came under an id of the caller's own, outlive their process.

Only who has given a call its id can ask for it after the answer was lost. Such a call is written down in the store
before it is handled and again before it is answered, so any process can tell what became of it, and none loses it.
"""

import asyncio
import logging
from contextlib import suppress
from hashlib import blake2b

import msgspec

from stateward.domains.mci.api.diary import Past
from stateward.domains.mci.catalogue import objects
from stateward.domains.mci.lifecycle import CALL
from stateward.domains.mci.model import HOME, part_id, plain
from stateward.engine import AlreadyExists, Denied, Engine
from stateward.lifecycle import CONTROLLER
from stateward.store.errors import StoreError
from stateward.store.records import Key
from stateward.store.selection import Selector

log = logging.getLogger("stateward.mci")

KEPT_FOR = 86_400.0
"""For how many seconds calls are kept."""

MOST_KEPT = 5000
BETWEEN_LOOKS = 3600.0


def is_kept(method: str, path: str) -> bool:
    """Tell whether a call changes something, in either form of control."""
    return method in ("POST", "PUT", "DELETE") or "/control/" in path


async def keep(engine: Engine, past: Past) -> None:
    """Write a call down, over what was written of it before; what goes wrong is no reason not to answer."""
    key = _key(past.id)
    try:
        try:
            await engine.create(*key, CALL.kind, "register", spec=plain(past), actor=CONTROLLER)
        except AlreadyExists:
            await engine.act(*key, "change", spec=plain(past), actor=CONTROLLER)
    except (StoreError, Denied) as error:
        log.warning("call %s is not kept: %s", past.id, error)


async def kept(engine: Engine, id_: str) -> Past | None:
    """Return a call that was kept."""
    found = await engine.store.reader.object(_key(id_))
    return None if found is None or found.removed else msgspec.json.decode(found.spec, type=Past)


async def all_kept(engine: Engine) -> list[Past]:
    """Return all calls that are kept."""
    chosen = objects(engine.store.reader, Selector(HOME, CALL.kind))
    return [msgspec.json.decode(one.spec, type=Past) async for one in chosen]


async def forget(engine: Engine, kept_for: float = KEPT_FOR, most: int = MOST_KEPT) -> None:
    """Forget calls that are old, and the oldest of too many."""
    calls = sorted(await all_kept(engine), key=lambda one: -one.began)
    oldest = await engine.store.reader.time() - kept_for
    for number, one in enumerate(calls):
        if number >= most or one.began < oldest:
            with suppress(Denied):  # somebody else was faster
                await engine.act(*_key(one.id), "remove", actor=CONTROLLER)


async def keep_forgetting(engine: Engine) -> None:
    """Forget old calls from time to time, for as long as the process lives."""
    while True:
        await asyncio.sleep(BETWEEN_LOOKS)
        try:
            await forget(engine)
        except StoreError as error:
            log.warning("old calls are forgotten later: %s", error)
        except Exception:
            log.exception("old calls could not be forgotten")


def _key(id_: str) -> Key:
    return Key(HOME, part_id("call", blake2b(id_.encode(), digest_size=16).hexdigest()))
