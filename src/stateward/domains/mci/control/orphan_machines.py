"""Orphan machines: machines of ours at a provider that no record names.

Nobody controls such a machine, but it runs on and costs money. Orphans are found in two ways:

- An administrator lists connections: each machine of ours without a record is an orphan. Several connections may lead
  to the same region, so the records of all connections and all namespaces count.
- A removal of records by force may create orphans. The reply and the journal name each machine that is not known to be
  gone: its connection, its key and its native id.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from stateward.domains.mci.errors import NotDone
from stateward.domains.mci.lifecycle import VM, VmState
from stateward.domains.mci.model import CloudConnection, vm_of, vm_seen
from stateward.domains.mci.provider.evidence import Evidence, Existence
from stateward.domains.mci.provider.provider_pool import ProviderClients
from stateward.domains.mci.shared_schemas import OrphanMachine, OrphanMachines, PossibleOrphan
from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    MachineAction,
    MachineHandle,
    MachineListing,
    MachineState,
    RefusalReason,
)
from stateward.engine import NotFound, Request
from stateward.engine.queries import list_all
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import StatewardError
from stateward.naming import new_id
from stateward.store.filters import Selector
from stateward.store.port import Reader
from stateward.store.records import Object

log = logging.getLogger("stateward.mci")

PROVIDER_TIMEOUT_S = 5.0
"""Time limit of a provider's answer when records are removed by force."""

ENDED_STATES = (MachineState.TERMINATED, MachineState.TERMINATING)
"""The states of machines that need no termination."""


# --- orphans at connections ------------------------------------------------------------------------------------------


def orphans_in(connection: CloudConnection, listing: MachineListing, known: Iterable[str]) -> list[OrphanMachine]:
    """Return the machines of a listing that are not among the known keys and have not ended."""
    keys = frozenset(known)
    return [
        OrphanMachine(connection.name, machine.key, machine.native_id, str(machine.state), machine.name)
        for machine in listing.machines
        if machine.key not in keys and machine.state not in ENDED_STATES
    ]


async def find_orphans(
    clients: ProviderClients, reader: Reader, connections: Sequence[CloudConnection]
) -> OrphanMachines:
    """List connections and compare them with the records; a machine that several connections show is named once.

    The providers are listed first: a record is always older than its machine, so a new machine is no orphan.
    """
    listings = await asyncio.gather(*(_list_machines(clients, connection) for connection in connections))
    trouble: dict[str, str] = {}
    recorded = await _recorded_uids(reader, trouble) if any(one.machines for one in listings) else set[str]()
    orphans: dict[tuple[str, str], OrphanMachine] = {}
    for connection, listing in zip(connections, listings, strict=True):
        if not listing.complete:
            trouble[connection.name] = listing.problem or "the listing was not complete"
        for orphan in orphans_in(connection, listing, recorded):
            orphans.setdefault((orphan.key, orphan.native_id), orphan)
    return OrphanMachines(list(orphans.values()), trouble)


async def _list_machines(clients: ProviderClients, connection: CloudConnection) -> MachineListing:
    try:
        return await (await clients.for_connection(connection)).list_shared()
    except StatewardError as error:
        return MachineListing((), complete=False, problem=str(error))
    except Exception as error:  # of a driver: the other connections are listed all the same
        log.exception("connection %s cannot be listed", connection.name)
        return MachineListing((), complete=False, problem=f"{type(error).__name__}: {error}")


async def _recorded_uids(reader: Reader, trouble: dict[str, str]) -> set[str]:
    """Return the keys of all machines that have a record, at any connection and in any namespace.

    A record that cannot be read is noted in `trouble`; its machine may be among the orphans.
    """
    found: set[str] = set()
    for ns in await reader.namespaces():
        async for vm in list_all(reader, Selector(ns, VM.kind)):
            try:
                found.add(vm_of(vm).uid)
            except msgspec.DecodeError as error:
                trouble[f"{ns}/{vm.id}"] = f"its record cannot be read, and its machine may be listed here: {error}"
    return found


async def terminate_orphans(
    clients: ProviderClients, reader: Reader, connection: CloudConnection, keys: Sequence[str], who: str
) -> dict[str, StatewardError]:
    """Terminate orphans of a connection; returns the errors by key. A machine that has a record is not found.

    One listing and one look at the records serve all of them, and the driver gets them in bulk. The records are read
    after the listing. An orphan that has ended meanwhile, such as over another connection, needs no termination.
    """
    listed = (await _list_machines(clients, connection)).machines
    unread: dict[str, str] = {}
    recorded = await _recorded_uids(reader, unread)
    shown = {one.key for one in listed} - recorded
    errors: dict[str, StatewardError] = {key: NotFound(connection.name, key) for key in keys if key not in shown}
    if unread:
        why = f"{', '.join(unread)} may own it: see its record first"
        return {key: errors.get(key) or NotDone(f"terminate of {key} at {connection.name}", why) for key in keys}
    wanted = set(keys) & shown
    running = {one.key: one.native_id for one in listed if one.key in wanted and one.state not in ENDED_STATES}
    client = await clients.for_connection(connection)

    async def terminate(key: str, native_id: str) -> None:
        outcome = await client.act(MachineAction.TERMINATE, MachineHandle(key, native_id or None, new_id()))
        if isinstance(outcome, CallRefused) and outcome.why is RefusalReason.NOT_FOUND:
            return
        if isinstance(outcome, CallAccepted | AlreadyDone):
            log.warning("orphan %s (%s) at connection %s: terminated for %s", key, native_id, connection.name, who)
            return
        why = getattr(outcome, "message", "") or "no answer"
        errors[key] = NotDone(f"terminate of {key} at {connection.name}", why)

    await asyncio.gather(*(terminate(key, native_id) for key, native_id in running.items()))
    return errors


# --- possible orphans of a removal -----------------------------------------------------------------------------------


def known_gone_fact(uid: str) -> str:
    """Return the fact of a removal that the machine of this uid is known to be gone."""
    return f"gone: {uid}"


async def possible_orphans(clients: ProviderClients, vms: Iterable[Object]) -> list[PossibleOrphan]:
    """Return the machines of VMs that are not known to be gone; each connection is listed once, all concurrently."""
    by_connection: dict[str, list[Object]] = defaultdict(list)
    for vm in vms:
        if vm.state != VmState.TERMINATED:
            by_connection[vm_of(vm).connection].append(vm)
    found = await asyncio.gather(*(_possible_orphans_at(clients, name, known) for name, known in by_connection.items()))
    return [orphan for orphans in found for orphan in orphans]


async def _possible_orphans_at(
    clients: ProviderClients, connection: str, vms: Sequence[Object]
) -> list[PossibleOrphan]:
    try:
        async with asyncio.timeout(PROVIDER_TIMEOUT_S):
            evidence = await (await clients.by_name(connection)).observe_all([vm_of(vm).uid for vm in vms])
    except (StatewardError, TimeoutError) as error:
        unknown = Evidence(Existence.UNKNOWN, problem=str(error) or f"no answer within {PROVIDER_TIMEOUT_S:g} s")
        evidence = {vm_of(vm).uid: unknown for vm in vms}
    return [
        PossibleOrphan(spec.name, connection, spec.uid, vm_seen(vm).native_id, _shown(evidence[spec.uid]))
        for vm, spec in ((vm, vm_of(vm)) for vm in vms)
        if not _is_gone(evidence[spec.uid])
    ]


def _shown(evidence: Evidence) -> str:
    return str(evidence.observation.state) if evidence.observation else evidence.problem


def _is_gone(evidence: Evidence) -> bool:
    observation = evidence.observation
    is_terminated = observation is not None and observation.state is MachineState.TERMINATED
    return evidence.existence is Existence.ABSENT or is_terminated


def journal_possible_orphan(uow: UnitOfWork, request: Request, found: Object) -> None:
    """Write into the journal which machine a removed VM may leave, unless the machine is known to be gone."""
    vm, seen = vm_of(found), vm_seen(found)
    if found.state != VmState.TERMINATED and known_gone_fact(vm.uid) not in request.facts:
        machine = f"key {vm.uid}, native id {seen.native_id or 'not known'}"
        reason = f"a machine may be left at {vm.connection}: {machine}; the VM was {found.state}"
        journal(uow, found, None, request.actor, request.who, "left behind", reason=reason)
