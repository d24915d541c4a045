"""Drift: differences between records and what the providers show, for VMs and for resources.

VMs: a listing may be shared and older than the record that it is compared with. Each comparison therefore carries the
time of its evidence, and the engine applies only what is newer than the VM's last change. One listing is applied in one
transaction.

Resources: a network, security group or key with a missing part is in state Error until it is repaired or shown again.

Orphan subnets: a change of a network that timed out is undone, but its last call may have created a subnet all the
same. No record names it, so no VM uses it. The network is reshaped into what its record says, which deletes the subnet.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable

from stateward.domains.mci import model
from stateward.domains.mci.lifecycle import VNET, ResourceState, VmState
from stateward.domains.mci.provider.evidence import CANNOT_SAY, Evidence, Existence, drift_event
from stateward.domains.mci.provider.provider_client import ProviderClient
from stateward.drivers import CloudResource, MachineListing, ResourceKind, ResourceListing
from stateward.engine import Engine
from stateward.engine.external_reports import Sighting
from stateward.engine.queries import list_all
from stateward.store.filters import Selector
from stateward.store.port import Reader
from stateward.store.records import Object, to_json

DRIFTING_STATES = frozenset({VmState.RUNNING, VmState.SUSPENDED, VmState.UNDEFINED})
"""The states of VMs that follow the provider's state."""


async def apply_vm_drift(engine: Engine, client: ProviderClient, listing: MachineListing, vms: Iterable[Object]) -> int:
    """Apply the drift of VMs without an operation; returns how many records to read again.

    A record that differs from the listing has changed now, by this call or by another caller with the same listing.
    """
    watched = {model.vm_target(vm).uid: vm for vm in vms if vm.state in DRIFTING_STATES and vm.op is None}
    evidence = client.read_listing(listing, watched)
    events = {uid: event for uid, vm in watched.items() if (event := drift_event(vm.state, evidence[uid])) is not None}
    if not events:
        return 0
    now = await engine.store.reader.time()

    def sighting(uid: str, event: str) -> Sighting:
        return _sighting(watched[uid], event, evidence[uid], client.store_time(evidence[uid].as_of, now))

    await engine.observe([sighting(uid, event) for uid, event in events.items()])
    return len(events)


def _sighting(vm: Object, event: str, evidence: Evidence, at: float) -> Sighting:
    seen = None if evidence.observation is None else to_json(model.seen_of(evidence.observation))
    reason = None
    if event == CANNOT_SAY and evidence.silent_s:
        reason = f"the provider has not shown it for {evidence.silent_s:.0f} s: {evidence.problem}"
    elif event == CANNOT_SAY:
        reason = "the provider does not show it any more"
    return Sighting(vm.ns, vm.id, event, at, seen, reason)


SHOWS_NONE, SHOWS_AGAIN = "shows none", "shows again"


async def resources_by_connection(reader: Reader) -> dict[str, list[Object]]:
    """Return all resources that are Available or have missing parts and no operation, by connection."""
    resources: dict[str, list[Object]] = defaultdict(list)
    for ns in await reader.namespaces():
        for lifecycle in model.RESOURCE_LIFECYCLES.values():
            async for resource in list_all(reader, Selector(ns, lifecycle.kind)):
                if resource.op is None and (
                    resource.state == ResourceState.AVAILABLE or model.resource_seen(resource).missing
                ):
                    resources[model.resource_identity(resource).connection].append(resource)
    return resources


def resource_drift(
    client: ProviderClient, parts: Iterable[Object], listing: ResourceListing, now: float
) -> list[tuple[Object, str, tuple[str, ...]]]:
    """Return the resources that have drifted, each with its event and its missing parts; `now` is the store's time."""
    named = [(part, _keys(part)) for part in parts]
    evidence = client.read_resource_listing(listing, [key for _, keys in named for key in keys])
    drifted: list[tuple[Object, str, tuple[str, ...]]] = []
    for part, keys in named:
        newer = {key for key in keys if client.store_time(evidence[key].as_of, now) >= part.since}
        missing = tuple(keys[key] for key in keys if key in newer and evidence[key].existence is Existence.ABSENT)
        if missing and part.state == ResourceState.AVAILABLE:
            drifted.append((part, SHOWS_NONE, missing))
        elif part.state == ResourceState.ERROR and all(
            key in newer and evidence[key].existence is Existence.PRESENT for key in keys
        ):
            drifted.append((part, SHOWS_AGAIN, ()))
    return drifted


def _keys(part: Object) -> dict[str, str]:
    """Return the provider keys of a resource and its subnets, each with a readable name."""
    where, resource_type = model.resource_identity(part), model.RESOURCE_TYPES[part.kind]
    keys = {where.uid: f"{resource_type} {where.name}"}
    if resource_type == "vNet":
        subnets = model.network_of(part).subnets
        keys |= {model.subnet_key(where.uid, subnet.name): f"subnet {subnet.name}" for subnet in subnets}
    return keys


RETRY_REMOVAL_S = 600.0
"""How long a network is not reshaped again for an orphan subnet that could not be deleted."""


def orphan_subnets(network: model.NetworkSpec, native: str, shown: Iterable[CloudResource]) -> list[CloudResource]:
    """Return the subnets of a network at the provider that its record does not name."""
    wanted = {model.subnet_key(network.uid, subnet.name) for subnet in network.subnets}
    return [
        resource
        for resource in shown
        if resource.kind is ResourceKind.SUBNET
        and native
        and resource.within == native
        and resource.key.startswith(model.subnet_key(network.uid, ""))
        and resource.key not in wanted
    ]


class OrphanSubnetFinder:
    """Finds networks with orphan subnets; pauses for a network whose orphan subnet could not be deleted."""

    def __init__(self) -> None:
        self._tried: dict[str, float] = {}  # keys of orphan subnets, and when their network was last reshaped

    def find(self, networks: Iterable[Object], shown: Collection[CloudResource], now: float) -> list[Object]:
        """Return the Available networks to reshape now."""
        self._tried = {key: at for key, at in self._tried.items() if now - at < RETRY_REMOVAL_S}
        return [network for network in networks if self._is_due(network, shown, now)]

    def _is_due(self, record: Object, shown: Collection[CloudResource], now: float) -> bool:
        if record.kind != VNET.kind or record.state != ResourceState.AVAILABLE:
            return False
        left = orphan_subnets(model.network_of(record), model.resource_seen(record).native_id, shown)
        keys = [subnet.key for subnet in left if subnet.key not in self._tried]
        self._tried.update(dict.fromkeys(keys, now))
        return bool(keys)
