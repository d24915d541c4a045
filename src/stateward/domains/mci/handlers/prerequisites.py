"""Prerequisites of VMs: networks, security groups and keys exist before the first VM is requested.

A dynamic MCI shares a network and a security group with the other MCIs of its namespace at the same connection. The
group is closed, but for SSH from the addresses of the request; MCIs with other addresses share another group. An MCI
has a key of its own (`key_pairs`), or the key that it names. Missing resources are created by operations of their own,
and deleted again if the preparation fails.
"""

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b

from msgspec.structs import replace

from stateward.domains.mci.lifecycle import MCI, MciState, ResourceState
from stateward.domains.mci.model import (
    EVERYBODY,
    MADE_FOR,
    RESOURCE_LIFECYCLES,
    SHARED,
    FirewallRule,
    KeySpec,
    MciSpec,
    NetworkSpec,
    SecurityGroupSpec,
    SubGroup,
    Subnet,
    mci_of,
    named_resources,
    native_ids,
    record_id,
    resource_identity,
    resource_seen,
)
from stateward.domains.mci.provider.catalogue import Catalogue
from stateward.domains.mci.provider.key_pairs import OWNED_BY, own_key_name, owner_of
from stateward.domains.mci.vm_placement import PlacedSubGroup, deterministic_uid
from stateward.engine import Job, Request, Temporary
from stateward.engine.queries import list_all
from stateward.engine.requests import Creation
from stateward.errors import StatewardError
from stateward.lifecycle import CONTROLLER
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, to_json

CIDR, SUBNET_CIDR = "10.0.0.0/16", "10.0.1.0/24"
SSH_PORT = "22"
OPEN_RULES = (FirewallRule("1-65535", "tcp"), FirewallRule("1-65535", "udp"), FirewallRule("", "icmp"))
ENDED_STATES = (MciState.TERMINATED, MciState.FAILED, MciState.EMPTY)
"""The states of MCIs that need no resources any more."""

MAX_ROUNDS = 3
"""Attempts to create a resource that other MCIs delete at the same time."""

RECHECK_AFTER_S = 0.5
"""Pause before a resource that another operation is creating is checked again."""


class Prerequisites:
    """Creates, finds and deletes the resources that VMs need."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def prepare(self, job: Job, mci: MciSpec, planned: Sequence[PlacedSubGroup], when: str = "") -> str | None:
        """Create all missing resources; returns the problem, if there is one."""
        planned = representatives(planned)
        for resource_type in RESOURCE_LIFECYCLES:
            trouble = await self._ensure_type(job, mci, resource_type, planned, when)
            if trouble is not None:
                return trouble
        return None

    async def recheck(self, job: Job, mci: MciSpec, planned: Sequence[PlacedSubGroup]) -> str | None:
        """Check once more right before VMs are created, and create what was deleted meanwhile."""
        planned = representatives(planned)
        for resource_type in RESOURCE_LIFECYCLES:
            if await self._find_problem(job.ns, mci, resource_type, planned) is not None:
                return await self.prepare(job, mci, planned, " for VMs")
        return None

    async def _ensure_type(
        self, job: Job, mci: MciSpec, resource_type: str, planned: Sequence[PlacedSubGroup], when: str
    ) -> str | None:
        """Create the resources of one type; recreate one that another MCI deletes at the same time."""
        made = self._names_to_make(job.ns, mci, resource_type, planned)
        for times in range(MAX_ROUNDS):
            requests = [self._request(job, mci, resource_type, one) for one in made.values()]
            await job.spawn(f"make {resource_type}s{when}{' again' * times}", requests)
            await self._repair(job, resource_type, list(made), f"{when}{' again' * times}")
            if not await self._any_removed(job.ns, resource_type, list(made)):
                break
        return await self._find_problem(job.ns, mci, resource_type, planned)

    def _names_to_make(
        self, ns: str, mci: MciSpec, resource_type: str, planned: Sequence[PlacedSubGroup]
    ) -> dict[str, PlacedSubGroup]:
        """Return the names of the resources of one type to create, each with a subgroup that uses it."""
        dynamic = [
            one for one in planned if not one.group.network and not (resource_type == "sshKey" and one.group.key)
        ]
        return {name: one for one in dynamic for name in _names(resource_type, with_prerequisite_names(ns, mci, one))}

    async def _repair(self, job: Job, resource_type: str, names: Sequence[str], when: str) -> None:
        """Repair shared resources that are missing at the provider."""
        repairs = [
            Request(job.ns, id_, "repair", "", CONTROLLER)
            for id_ in await self._ids_with_missing(job.ns, resource_type, names)
        ]
        if repairs:
            await job.spawn(f"repair {resource_type}s{when}", repairs)

    async def _ids_with_missing(self, ns: str, resource_type: str, names: Sequence[str]) -> list[str]:
        found = await self._catalogue.reader.objects([Key(ns, record_id(resource_type, name)) for name in names])
        return sorted(one.id for one in found.values() if not one.removed and resource_seen(one).missing)

    async def _any_removed(self, ns: str, resource_type: str, names: Sequence[str]) -> bool:
        keys = {Key(ns, record_id(resource_type, name)) for name in names}
        found = await self._catalogue.reader.objects(keys)
        return len(found) < len(keys) or any(one.removed for one in found.values())

    async def undo(self, job: Job, mci: MciSpec) -> None:
        """Delete the resources that were made for an MCI, unless other MCIs use them."""
        for resource_type in ("sshKey", "securityGroup", "vNet"):
            made = await job.once(f"made {resource_type}s", partial(self._ids_made_for, job, resource_type, mci.uid))
            await job.spawn(
                f"remove {resource_type}s", [Request(job.ns, id_, "delete", "", CONTROLLER) for id_ in made]
            )

    async def _ids_made_for(self, job: Job, resource_type: str, uid: str) -> list[str]:
        chosen = Selector(job.ns, RESOURCE_LIFECYCLES[resource_type].kind, labels=((MADE_FOR, uid),))
        made = [one async for one in list_all(self._catalogue.reader, chosen)]
        needed = await self._connections_in_use(job) if made else set()
        return [one.id for one in made if owner_of(one) or resource_identity(one).connection not in needed]

    async def _connections_in_use(self, job: Job) -> set[str]:
        """Return the connections where other MCIs of the namespace use the shared resources."""
        mcis = [one async for one in list_all(self._catalogue.reader, Selector(job.ns, MCI.kind))]
        others = [one for one in mcis if one.id != job.object and one.state not in ENDED_STATES]
        groups = [group for one in others for group in mci_of(one).groups]
        return {one.connection or await self._connection_of_spec(job.ns, one.spec) for one in groups if not one.network}

    async def _connection_of_spec(self, ns: str, spec: str) -> str:
        try:
            return (await self._catalogue.spec(ns, spec)).connection
        except StatewardError:
            return ""  # no VM can be created from an unknown spec

    async def native_ids(self, ns: str, names: SubGroup) -> dict[str, str]:
        """Return the provider's ids of the resources that a subgroup names."""
        network = await self._resource(ns, "vNet", names.network)
        groups = [await self._resource(ns, "securityGroup", name) for name in names.groups]
        key = await self._resource(ns, "sshKey", names.key) if names.key else None
        return native_ids(names.subnet, network, groups, key)

    async def _resource(self, ns: str, resource_type: str, name: str) -> Object:
        found = await self._catalogue.reader.object(Key(ns, record_id(resource_type, name)))
        assert found is not None
        return found

    async def _find_problem(
        self, ns: str, mci: MciSpec, resource_type: str, planned: Sequence[PlacedSubGroup]
    ) -> str | None:
        wanted = {
            (name, one.connection.name): one
            for one in planned
            for name in _names(resource_type, with_prerequisite_names(ns, mci, one))
        }
        parts = await self._catalogue.reader.objects({Key(ns, record_id(resource_type, name)) for name, _ in wanted})
        for (name, _), one in sorted(wanted.items(), key=lambda item: item[0]):
            found = parts.get(Key(ns, record_id(resource_type, name)))
            if found is None or found.removed:
                return f"there is no {resource_type} {name!r}"
            if found.state in (ResourceState.CONFIGURING, ResourceState.DELETING):
                raise Temporary(f"{resource_type} {name!r} is {found.state}", after=RECHECK_AFTER_S)
            if found.state != ResourceState.AVAILABLE:
                return f"{resource_type} {name!r} is {found.state}: {found.error or 'no reason is known'}"
            place = resource_identity(found)
            if (place.provider, place.region) != (one.connection.provider, one.connection.region):
                return f"{resource_type} {name!r} is at {place.connection}, not at {one.connection.name}"
        return None

    def _request(self, job: Job, mci: MciSpec, resource_type: str, one: PlacedSubGroup) -> Request:
        names, place = with_prerequisite_names(job.ns, mci, one), one.connection
        own = resource_type == "sshKey" and one.group.public_key != ""
        uid = deterministic_uid(job.key.id, f"{resource_type} {names.key if own else place.name}")
        common = {"uid": uid, "connection": place.name, "provider": place.provider, "region": place.region}
        want: NetworkSpec | SecurityGroupSpec | KeySpec
        if resource_type == "vNet":
            subnets = (Subnet(names.subnet, SUBNET_CIDR, place.zone),)
            want = NetworkSpec(name=names.network, cidr=CIDR, subnets=subnets, **common)
        elif resource_type == "securityGroup":
            rules = shared_rules(mci)
            want = SecurityGroupSpec(name=names.groups[0], network=names.network, rules=rules, **common)
        else:
            want = KeySpec(name=names.key, public_key=one.group.public_key, **common)
        labels = {MADE_FOR: mci.uid, SHARED: "yes"} | ({OWNED_BY: mci.uid} if own else {})
        creation = Creation(RESOURCE_LIFECYCLES[resource_type].kind, labels=to_json(labels))
        return Request(
            job.ns, record_id(resource_type, want.name), "create", "", CONTROLLER, spec=to_json(want), creates=creation
        )


def with_prerequisite_names(ns: str, mci: MciSpec, one: PlacedSubGroup) -> SubGroup:
    """Return a subgroup with the names of its resources: its own, its MCI's, or the shared ones."""
    group, connection = one.group, one.connection.name
    if group.network:
        return group
    shared = f"{ns}-shared-{connection}"
    key = group.key or (own_key_name(mci, group, connection) if group.public_key else shared)
    return replace(group, network=shared, subnet=shared, groups=(shared_group_name(mci, shared),), key=key)


def shared_group_name(mci: MciSpec, shared: str) -> str:
    """Return the name of the security group that MCIs with the same access share at a connection."""
    if is_open_to_all(mci):
        return shared
    if not mci.access_from:
        return f"{shared}-closed"
    digest = blake2b(" ".join(sorted(mci.access_from)).encode(), digest_size=4).hexdigest()
    return f"{shared}-ssh-{digest}"


def is_open_to_all(mci: MciSpec) -> bool:
    """Tell whether every port of an MCI's VMs is open to all addresses; it was so before `access_from` existed."""
    return mci.access_from is None or EVERYBODY in mci.access_from


def shared_rules(mci: MciSpec) -> tuple[FirewallRule, ...]:
    """Return the rules of the shared security group: closed, but for SSH from where the caller says."""
    if is_open_to_all(mci):
        return OPEN_RULES
    return tuple(FirewallRule(SSH_PORT, "tcp", cidr=one) for one in sorted(mci.access_from or ()))


def representatives(planned: Sequence[PlacedSubGroup]) -> list[PlacedSubGroup]:
    """Return one subgroup for each set of resources: 400 subgroups may share the resources of a few connections."""
    found: dict[tuple[object, ...], PlacedSubGroup] = {}
    for one in planned:
        group = one.group
        shared = group.network, group.subnet, group.groups, group.key, group.public_key
        found.setdefault((one.connection.name, *shared), one)
    return list(found.values())


def _names(resource_type: str, group: SubGroup) -> tuple[str, ...]:
    return tuple(filter(None, named_resources(group)[resource_type]))
