"""Orphan machines: machines of ours at a provider that no record names.

Nobody controls such a machine, but it runs on and costs money. Orphans are found in two ways:

- An administrator lists connections: each machine of ours without a record is an orphan, and so is one that lives long
  after its VM was found Terminated. Several connections may lead to the same region, so the records of all connections
  and all namespaces count.
- A removal of records may create orphans. The providers are listed before it, and the removing transaction decides
  which of their answers still count. The reply and the journal name each machine that is not known to be gone: its
  connection, its key and its native id. The machine of a Terminated VM counts as gone unless its provider shows that it
  lives.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward import drivers
from stateward.domains.mci.control.machine_claims import has_machine
from stateward.domains.mci.errors import NotDone
from stateward.domains.mci.lifecycle import VM, VmState
from stateward.domains.mci.model import ADOPTED_KEY, CloudConnection, vm_of, vm_seen
from stateward.domains.mci.provider.evidence import APPEARS_WITHIN_S, Evidence, Existence
from stateward.domains.mci.provider.provider_pool import ProviderClients
from stateward.domains.mci.shared_schemas import OrphanMachine, OrphanMachines, PossibleOrphan
from stateward.engine import NotFound, Request
from stateward.engine.queries import list_all
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import StatewardError
from stateward.naming import new_id
from stateward.store.filters import Selector
from stateward.store.port import Reader
from stateward.store.records import Object, to_json

log = logging.getLogger("stateward.mci")

PROVIDER_TIMEOUT_S = 5.0
"""Time limit of a provider's answer when records are removed by force."""

NOT_OBSERVED = "created while the providers were listed"

ENDED_STATES = (drivers.MachineState.TERMINATED, drivers.MachineState.TERMINATING)
"""The states of machines that need no termination."""


# --- orphans at connections ------------------------------------------------------------------------------------------


class ListedConnection(Struct, frozen=True):
    """A listing of a connection; by the store's time, nothing in it dates from before `as_of`."""

    connection: CloudConnection
    listing: drivers.MachineListing
    as_of: float


def owned_until(vms: Iterable[Object]) -> dict[str, float]:
    """Return until when each key belongs to a VM: a machine that lives on after its VM has ended is an orphan."""
    return {
        vm_of(vm).uid: vm.since + APPEARS_WITHIN_S if vm.state == VmState.TERMINATED and vm.op is None else inf
        for vm in vms
    }


def orphans_in(listed: ListedConnection, owned: Mapping[str, float]) -> list[OrphanMachine]:
    """Return the machines of a listing that belong to no VM and have not ended."""
    return [
        OrphanMachine(listed.connection.name, machine.key, machine.native_id, str(machine.state), machine.name)
        for machine in listed.listing.machines
        if machine.state not in ENDED_STATES and owned.get(machine.key, -inf) < listed.as_of
    ]


async def find_orphans(
    clients: ProviderClients, reader: Reader, connections: Sequence[CloudConnection]
) -> OrphanMachines:
    """List connections and compare them with the records; a machine that several connections show is named once.

    The providers are listed first: a record is always older than its machine, so a new machine is no orphan.
    """
    listings = await asyncio.gather(*(_list_machines(clients, reader, connection) for connection in connections))
    trouble: dict[str, str] = {}
    owned = await _owned_keys(reader, trouble) if any(listing.listing.machines for listing in listings) else {}
    orphans: dict[tuple[str, str], OrphanMachine] = {}
    for listed in listings:
        if not listed.listing.complete:
            trouble[listed.connection.name] = listed.listing.problem or "the listing was not complete"
        for orphan in orphans_in(listed, owned):
            orphans.setdefault((orphan.key, orphan.native_id), orphan)
    return OrphanMachines(list(orphans.values()), trouble)


async def _list_machines(clients: ProviderClients, reader: Reader, connection: CloudConnection) -> ListedConnection:
    try:
        client = await clients.for_connection(connection)
        listing = await client.list_now()
        return ListedConnection(connection, listing, client.store_time(listing.as_of, await reader.time()))
    except StatewardError as error:
        problem = str(error)
    except Exception as error:  # of a driver: the other connections are listed all the same
        log.exception("connection %s cannot be listed", connection.name)
        problem = f"{type(error).__name__}: {error}"
    return ListedConnection(connection, drivers.MachineListing((), complete=False, problem=problem), -inf)


async def _owned_keys(reader: Reader, trouble: dict[str, str]) -> dict[str, float]:
    """Return the keys of all machines that have a record, at any connection and in any namespace: `owned_until`.

    A record that cannot be read is noted in `trouble`; its machine may be among the orphans.
    """
    owned: dict[str, float] = {}
    for ns in await reader.namespaces():
        async for vm in list_all(reader, Selector(ns, VM.kind)):
            try:
                owned |= owned_until([vm])
            except msgspec.DecodeError as error:
                trouble[f"{ns}/{vm.id}"] = f"its record cannot be read, and its machine may be listed here: {error}"
    return owned


async def terminate_orphans(
    clients: ProviderClients, reader: Reader, connection: CloudConnection, keys: Sequence[str], who: str
) -> dict[str, StatewardError]:
    """Terminate orphans of a connection; returns the errors by key. A machine that has a record is not found.

    One listing and one read of the records serve all of them, and the driver gets them in bulk. The records are read
    after the listing. An orphan that has ended meanwhile, such as over another connection, needs no termination. A
    machine that others have created is not ours to end: only our key is taken off it.
    """
    listed = await _list_machines(clients, reader, connection)
    unread: dict[str, str] = {}
    owned = await _owned_keys(reader, unread)
    machines = [machine for machine in listed.listing.machines if owned.get(machine.key, -inf) < listed.as_of]
    shown = {machine.key for machine in machines}
    errors: dict[str, StatewardError] = {key: NotFound(connection.name, key) for key in keys if key not in shown}
    if unread:
        why = f"{', '.join(unread)} may own it: see its record first"
        return {key: errors.get(key) or NotDone(f"terminate of {key} at {connection.name}", why) for key in keys}
    wanted = set(keys) & shown
    running = {
        machine.key: machine.native_id
        for machine in machines
        if machine.key in wanted and machine.state not in ENDED_STATES
    }
    client = await clients.for_connection(connection)

    async def terminate(key: str, native_id: str) -> None:
        handle = drivers.MachineHandle(key, native_id or None, new_id())
        is_ours = not key.startswith(ADOPTED_KEY)
        outcome = await (client.act(drivers.MachineAction.TERMINATE, handle) if is_ours else client.release(handle))
        if isinstance(outcome, drivers.CallRefused) and outcome.why is drivers.RefusalReason.NOT_FOUND:
            return
        if isinstance(outcome, drivers.CallAccepted | drivers.AlreadyDone):
            done = "terminated" if is_ours else "released"
            log.warning("orphan %s (%s) at connection %s: %s for %s", key, native_id, connection.name, done, who)
            return
        why = getattr(outcome, "message", "") or "no answer"
        errors[key] = NotDone(f"terminate of {key} at {connection.name}", why)

    await asyncio.gather(*(terminate(key, native_id) for key, native_id in running.items()))
    return errors


# --- possible orphans of a removal -----------------------------------------------------------------------------------


class RemovalEvidence(Struct, frozen=True):
    """What the providers show of VMs that are to be removed: by uid, and the facts about which are gone or live."""

    shown: dict[str, str] = {}
    facts: frozenset[str] = frozenset()


def _fact(what: Literal["gone", "lives"], vm: Object) -> str:
    """Return the fact of a removal that the machine of a VM is gone, or lives: for this version of the record only.

    Each operation on a VM changes its version, so a call that came after the observation makes it void.
    """
    return f"{what}: {vm_of(vm).uid} {vm.version}"


async def observe_before_removal(clients: ProviderClients, reader: Reader, vms: Iterable[Object]) -> RemovalEvidence:
    """Observe the machines of VMs that are to be removed; each connection is listed once, all concurrently."""
    places: dict[tuple[str, str], list[Object]] = defaultdict(list)
    for vm in vms:
        if has_machine(vm) or vm.state == VmState.TERMINATED:
            places[vm_of(vm).connection, vm_of(vm).lane].append(vm)
    observed = await asyncio.gather(*(_observe_at(clients, reader, *place, known) for place, known in places.items()))
    shown = {uid: text for evidence in observed for uid, text in evidence.shown.items()}
    return RemovalEvidence(shown, frozenset(fact for evidence in observed for fact in evidence.facts))


async def _observe_at(
    clients: ProviderClients, reader: Reader, connection: str, lane: str, vms: Sequence[Object]
) -> RemovalEvidence:
    uids = [vm_of(vm).uid for vm in vms]
    try:
        async with asyncio.timeout(PROVIDER_TIMEOUT_S):
            client = await clients.for_lane(connection, lane)
            evidence = await client.observe_all(uids)
    except (StatewardError, TimeoutError) as error:
        return RemovalEvidence(dict.fromkeys(uids, str(error) or f"no answer within {PROVIDER_TIMEOUT_S:g} s"))
    now = await reader.time()
    seen = [(vm, evidence[uid], client.store_time(evidence[uid].as_of, now)) for vm, uid in zip(vms, uids, strict=True)]
    gone = {_fact("gone", vm) for vm, each, as_of in seen if _is_gone(vm, each, as_of)}
    living = {_fact("lives", vm) for vm, each, as_of in seen if _lives_on(vm, each, as_of)}
    return RemovalEvidence({uid: _shown(each) for uid, each in evidence.items()}, frozenset(gone | living))


def _shown(evidence: Evidence) -> str:
    return str(evidence.observation.state) if evidence.observation else evidence.problem or "not listed"


def _is_gone(vm: Object, evidence: Evidence, as_of: float) -> bool:
    """Tell whether evidence proves that the machine of a VM is gone; `as_of` is the evidence's time, by the store.

    The operation of a VM, such as its create, may call the provider at any time: until it has ended, absence proves
    nothing. Neither does absence shortly after the last operation, if no listing has ever shown the machine.
    """
    if evidence.observation is not None:
        return evidence.observation.state is drivers.MachineState.TERMINATED
    settles_s = 0.0 if vm_seen(vm).native_id else APPEARS_WITHIN_S
    return evidence.existence is Existence.ABSENT and vm.op is None and as_of >= vm.since + settles_s


def _lives_on(vm: Object, evidence: Evidence, as_of: float) -> bool:
    """Tell whether evidence shows a machine that lives although its VM is Terminated."""
    shown = evidence.observation
    return shown is not None and shown.state not in ENDED_STATES and owned_until([vm])[vm_of(vm).uid] < as_of


def note_possible_orphan(uow: UnitOfWork, request: Request, record: Object) -> Request:
    """Note the machine that a removed VM may leave, unless it is known to be gone: in its record and in the journal."""
    is_gone = (
        _fact("gone", record) in request.facts if has_machine(record) else _fact("lives", record) not in request.facts
    )
    if is_gone:
        return request
    vm, seen = vm_of(record), vm_seen(record)
    machine = f"key {vm.uid}, native id {seen.native_id or 'not known'}"
    reason = f"a machine may be left at {vm.connection}: {machine}; the VM was {record.state}"
    journal(uow, record, None, request.actor, request.who, "left behind", reason=reason)
    return replace(request, seen=to_json(replace(seen, left=reason)))


def possible_orphans(removed: Iterable[Object], evidence: RemovalEvidence) -> list[PossibleOrphan]:
    """Return the machines that removed VMs may leave, as the removing transaction has decided."""
    left = [(vm_of(vm), vm_seen(vm)) for vm in removed]
    return [
        PossibleOrphan(vm.name, vm.connection, vm.uid, seen.native_id, evidence.shown.get(vm.uid, NOT_OBSERVED))
        for vm, seen in left
        if seen.left
    ]
