"""Store of logged requests: requests that change something and have an id of the caller's own.

Only a caller who has chosen the id can ask for a request whose response was lost. Such a request is stored before it is
handled and again before the response, so that any process can tell its outcome.
"""

import logging
from contextlib import suppress
from functools import partial
from hashlib import blake2b

from stateward.aio.supervise import repeat
from stateward.domains.mci.api.request_log import LoggedRequest
from stateward.domains.mci.lifecycle import CALL
from stateward.domains.mci.model import DEPLOYMENT_NS, record_id, spec_reader
from stateward.engine import AlreadyExists, Denied, Engine
from stateward.engine.errors import VersionMismatch
from stateward.engine.queries import list_all
from stateward.lifecycle import CONTROLLER
from stateward.store.errors import StoreError
from stateward.store.filters import Selector
from stateward.store.records import Key, Object

log = logging.getLogger("stateward.mci")

RETENTION_S = 86_400.0
"""How long requests are stored."""

MAX_STORED = 5000
SLOTS, SLOT_CHOICES = 32_768, 4
"""The number of slots for requests, and the number of slots that each request can choose from.

A removed record leaves a tombstone. A request therefore has no record of its own name, but takes a free slot. The
number of records never exceeds the number of slots.
"""

MAX_WRITE_ATTEMPTS = 5
PRUNE_INTERVAL_S = 3600.0

_logged_request = spec_reader(LoggedRequest)


async def store_request(engine: Engine, past: LoggedRequest) -> None:
    """Store a request over its earlier version; an error is logged and does not fail the request."""
    try:
        for _ in range(MAX_WRITE_ATTEMPTS):
            with suppress(AlreadyExists, VersionMismatch):  # another request has taken the slot
                return await _write(engine, past)
    except (StoreError, Denied) as error:
        log.warning("request %s was not stored: %s", past.id, error)


async def _write(engine: Engine, past: LoggedRequest) -> None:
    taken = await _read_slots(engine, past.id)
    free = [key for key, record in taken.items() if record is None]
    logged = [(_logged_request(record), record) for record in taken.values() if record is not None]
    same = next((record for was, record in logged if (was.token, was.id) == (past.token, past.id)), None)
    if same is None and free:
        await engine.create(*free[0], CALL.kind, "register", spec=past, actor=CONTROLLER)
        return
    # The caller's own record is replaced before another caller's.
    oldest = same or min(logged, key=lambda call: (call[0].token != past.token, call[0].began))[1]
    await engine.act(*oldest.key, "change", spec=past, actor=CONTROLLER, version=oldest.version)


async def stored_requests(engine: Engine, id_: str) -> list[LoggedRequest]:
    """Return the stored requests of an id, one per caller."""
    calls = [_logged_request(slot) for slot in (await _read_slots(engine, id_)).values() if slot is not None]
    return [call for call in calls if call.id == id_]


async def all_stored_requests(engine: Engine) -> list[LoggedRequest]:
    """Return all stored requests."""
    return [
        _logged_request(record) async for record in list_all(engine.store.reader, Selector(DEPLOYMENT_NS, CALL.kind))
    ]


async def prune_requests(engine: Engine, kept_for: float = RETENTION_S, most: int = MAX_STORED) -> None:
    """Remove requests that are too old or too many."""
    records = [record async for record in list_all(engine.store.reader, Selector(DEPLOYMENT_NS, CALL.kind))]
    calls = sorted(((_logged_request(record).began, record) for record in records), key=lambda call: -call[0])
    oldest = await engine.store.reader.time() - kept_for
    for number, (began, record) in enumerate(calls):
        if number >= most or began < oldest:
            with suppress(Denied):  # another process was first
                await engine.act(*record.key, "remove", actor=CONTROLLER, version=record.version, spec={})


async def prune_requests_loop(engine: Engine) -> None:
    """Prune stored requests from time to time until cancelled."""
    run_once, interval_s = partial(prune_requests, engine), lambda: PRUNE_INTERVAL_S
    await repeat("retention of the request log", run_once, interval_s, log, transient=StoreError)


async def _read_slots(engine: Engine, id_: str) -> dict[Key, Object | None]:
    """Return the slots of a request, with their current records."""
    keys = slots_of(id_)
    stored = await engine.store.reader.objects(keys)
    return {key: record if (record := stored.get(key)) is not None and not record.removed else None for key in keys}


def slots_of(id_: str) -> list[Key]:
    """Return the slots of a request: always the same ones, and rarely all taken."""
    digest = blake2b(id_.encode(), digest_size=4 * SLOT_CHOICES).digest()
    numbers = [int.from_bytes(digest[at : at + 4]) % SLOTS for at in range(0, len(digest), 4)]
    return [Key(DEPLOYMENT_NS, record_id("call", str(number))) for number in dict.fromkeys(numbers)]
