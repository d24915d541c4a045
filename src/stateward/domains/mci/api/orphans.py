"""Orphans: machines of ours at a provider that no record knows. They are found by comparing, and ended on request."""

import asyncio
import logging
from collections.abc import Sequence

from msgspec import Struct

from stateward.domains.mci.api.context import TumblebugRequest
from stateward.domains.mci.control.reconciler import Orphan
from stateward.domains.mci.errors import NotDone
from stateward.domains.mci.lifecycle import VM
from stateward.domains.mci.model import CloudConnection, vm_of
from stateward.domains.mci.provider.catalogue import objects
from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    MachineAction,
    MachineListing,
    MachineRef,
    MachineState,
)
from stateward.engine import NotFound
from stateward.errors import StatewardError
from stateward.naming import new_id
from stateward.store.filters import Selector
from stateward.store.port import Reader

log = logging.getLogger("stateward.mci")

ENDED = (MachineState.TERMINATED, MachineState.TERMINATING)


class Orphans(Struct, frozen=True):
    """What was found, and at which connections nobody could say."""

    orphans: list[Orphan]
    trouble: dict[str, str]


async def orphans_at(request: TumblebugRequest, connections: Sequence[CloudConnection]) -> Orphans:
    """Look for orphans. The providers are asked first: a record is always older than its machine."""
    listings = await asyncio.gather(*(_listing(request, one) for one in connections))
    found: list[Orphan] = []
    trouble: dict[str, str] = {}
    for connection, listing in zip(connections, listings, strict=True):
        if not listing.complete:
            trouble[connection.name] = listing.problem or "the listing was not complete"
        if listing.machines:
            known = await _uids(request.service.engine.store.reader, connection.name)
            found += [
                Orphan(connection.name, one.key, one.native_id, str(one.state), one.name)
                for one in listing.machines
                if one.key not in known and one.state not in ENDED
            ]
    return Orphans(found, trouble)


async def _listing(request: TumblebugRequest, connection: CloudConnection) -> MachineListing:
    try:
        return await (await request.context.domain.clients.for_connection(connection)).list_shared()
    except StatewardError as error:
        return MachineListing((), complete=False, problem=str(error))


async def _uids(reader: Reader, connection: str) -> set[str]:
    return {
        vm_of(one).uid
        for ns in await reader.namespaces()
        async for one in objects(reader, Selector(ns, VM.kind, labels=(("connection", connection),)))
    }


async def terminate_orphan(request: TumblebugRequest, connection: CloudConnection, key: str) -> None:
    """Terminate an orphan; what is none is not found."""
    orphans = (await orphans_at(request, [connection])).orphans
    orphan = next((one for one in orphans if one.key == key), None)
    if orphan is None:
        raise NotFound(connection.name, key)
    client = await request.context.domain.clients.for_connection(connection)
    outcome = await client.act(MachineAction.TERMINATE, MachineRef(key, orphan.native_id or None, new_id()))
    if not isinstance(outcome, CallAccepted | AlreadyDone):
        raise NotDone(f"terminate of {key} at {connection.name}", getattr(outcome, "message", "") or "no answer")
    log.warning("orphan %s (%s) at %s is terminated for %s", key, orphan.native_id, connection.name, request.caller.who)
