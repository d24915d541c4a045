"""Prerequisites of VMs: networks, security groups and keys exist before the first VM is requested.

A dynamic MCI shares a network and a security group with the other MCIs of its namespace at the same connection. The
group is closed, but for SSH from the addresses of the request; MCIs with other addresses share another group. An MCI
has a key of its own (`key_pairs`), or the key that it names. Missing resources are created by operations of their own,
all at once, and deleted again if the preparation fails. A security group needs its network, so it uses the network's
queue: its creation begins when that of the network has ended.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.mci import model
from stateward.domains.mci.lifecycle import SECURITY_GROUP, ResourceState
from stateward.domains.mci.provider.catalogue import Catalogue
from stateward.domains.mci.provider.key_pairs import OWNED_BY, own_key_name
from stateward.domains.mci.vm_placement import PlacedSubGroup, deterministic_uid
from stateward.engine import Job, Request, Temporary
from stateward.engine.queries import list_all
from stateward.engine.requests import Creation
from stateward.lifecycle import CONTROLLER
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, to_json

CIDR, SUBNET_CIDR = "10.0.0.0/16", "10.0.1.0/24"
SSH_PORT = "22"
OPEN_RULES = (
    model.FirewallRule("1-65535", "tcp"),
    model.FirewallRule("1-65535", "udp"),
    model.FirewallRule("", "icmp"),
)
MAX_ROUNDS = 3
"""Attempts to create a resource that other MCIs delete at the same time."""

RECHECK_AFTER_S = 0.5
"""Pause before a resource that another operation is creating is checked again."""


class ResourceUse(Struct, frozen=True):
    """A resource that a subgroup uses; `names` is the subgroup with the names of all its resources."""

    resource_type: str
    name: str
    key: Key
    placed: PlacedSubGroup
    names: model.SubGroup

    @property
    def is_made(self) -> bool:
        """Whether the MCI creates it, if it is missing: the caller did not name it."""
        group = self.placed.group
        return not group.network and not (self.resource_type == "sshKey" and group.key)


class Prerequisites:
    """Creates, finds and deletes the resources that VMs need."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def prepare(
        self, job: Job, mci: model.MciSpec, planned: Sequence[PlacedSubGroup], when: str = ""
    ) -> str | None:
        """Create all missing resources; returns the problem, if there is one.

        A resource that another MCI deletes at the same time is created again.
        """
        wanted = _uses(job.ns, mci, representatives(planned))
        stored = await self._read(wanted)
        for times in range(MAX_ROUNDS):
            requests = [*([] if times else _repairs(job, wanted, stored)), *_creations(job, mci, wanted, stored)]
            if not requests:
                break
            await job.spawn(f"make resources{when}{' again' * times}", requests)
            stored = await self._read(wanted)
        return _find_problem(wanted, stored)

    async def _read(self, wanted: Sequence[ResourceUse]) -> dict[Key, Object]:
        return await self._catalogue.reader.objects({use.key for use in wanted})

    async def undo(self, job: Job, mci: model.MciSpec) -> None:
        """Delete the resources that were made for an MCI; those that others use stay, because their guard refuses."""
        for resource_type in ("sshKey", "securityGroup", "vNet"):
            step = f"remove {resource_type}s"
            made = [] if job.result_of(step) is not None else await self._ids_made_for(job, resource_type, mci.uid)
            await job.spawn(step, [Request(job.ns, id_, "delete", "", CONTROLLER) for id_ in made])

    async def _ids_made_for(self, job: Job, resource_type: str, uid: str) -> list[str]:
        chosen = Selector(job.ns, model.RESOURCE_LIFECYCLES[resource_type].kind, labels=((model.MADE_FOR, uid),))
        return [resource.id async for resource in list_all(self._catalogue.reader, chosen)]

    async def native_ids(self, ns: str, names: model.SubGroup) -> dict[str, str]:
        """Return the provider's ids of the resources that a subgroup names."""
        network = await self._resource(ns, "vNet", names.network)
        groups = [await self._resource(ns, "securityGroup", name) for name in names.groups]
        key = await self._resource(ns, "sshKey", names.key) if names.key else None
        return model.native_ids(names.subnet, network, groups, key)

    async def _resource(self, ns: str, resource_type: str, name: str) -> Object:
        resource = await self._catalogue.reader.object(Key(ns, model.record_id(resource_type, name)))
        assert resource is not None
        return resource


def _repairs(job: Job, wanted: Sequence[ResourceUse], stored: Mapping[Key, Object]) -> list[Request]:
    """Return the requests that repair shared resources which are missing at the provider."""
    resources = (stored.get(key) for key in dict.fromkeys(use.key for use in wanted if use.is_made))
    missing = [
        resource for resource in resources if resource is not None and not resource.removed and _is_missing(resource)
    ]
    return [Request(job.ns, resource.id, "repair", "", CONTROLLER) for resource in missing]


def _is_missing(resource: Object) -> bool:
    """Tell whether a resource is missing at the provider: lost, or a security group whose network could not be made."""
    seen = model.resource_seen(resource)
    is_group = resource.kind == SECURITY_GROUP.kind
    return bool(seen.missing) or (is_group and resource.state == ResourceState.ERROR and not seen.native_id)


def _creations(
    job: Job, mci: model.MciSpec, wanted: Sequence[ResourceUse], stored: Mapping[Key, Object]
) -> list[Request]:
    """Return the requests that create resources; the request for a network comes before those for what is in it."""
    made = {use.key: use for use in wanted if use.is_made}
    for key, use in made.items():
        if key in stored and stored[key].state == ResourceState.DELETING:  # a security group would wait for its end
            raise _not_ready(use, stored[key])
    return [_request(job, mci, use) for key, use in made.items() if key not in stored or stored[key].removed]


def _not_ready(use: ResourceUse, resource: Object) -> Temporary:
    return Temporary(f"{use.resource_type} {use.name!r} is {resource.state}", after=RECHECK_AFTER_S)


def _find_problem(wanted: Sequence[ResourceUse], stored: Mapping[Key, Object]) -> str | None:
    """Return why VMs cannot use their resources; a network comes before what is in it."""
    order = list(model.RESOURCE_LIFECYCLES)
    for use in sorted(wanted, key=lambda use: (order.index(use.resource_type), use.name, use.placed.connection.name)):
        resource, name = stored.get(use.key), f"{use.resource_type} {use.name!r}"
        if resource is None or resource.removed:
            return f"there is no {name}"
        if resource.state in (ResourceState.CONFIGURING, ResourceState.DELETING):
            raise _not_ready(use, resource)
        if resource.state != ResourceState.AVAILABLE:
            return f"{name} is {resource.state}: {resource.error or 'no reason is known'}"
        place, connection = model.resource_identity(resource), use.placed.connection
        if (place.provider, place.region) != (connection.provider, connection.region):
            return f"{name} is at {place.connection}, not at {connection.name}"
    return None


def _request(job: Job, mci: model.MciSpec, use: ResourceUse) -> Request:
    """Return the request that creates a resource."""
    names, group, place = use.names, use.placed.group, use.placed.connection
    own = use.resource_type == "sshKey" and group.public_key != ""
    uid = deterministic_uid(job.key.id, f"{use.resource_type} {names.key if own else place.name}")
    common = {"uid": uid, "connection": place.name, "provider": place.provider, "region": place.region}
    want: model.NetworkSpec | model.SecurityGroupSpec | model.KeySpec
    if use.resource_type == "vNet":
        subnets = (model.Subnet(names.subnet, SUBNET_CIDR, place.zone),)
        want = model.NetworkSpec(name=names.network, cidr=CIDR, subnets=subnets, **common)
    elif use.resource_type == "securityGroup":
        rules = shared_rules(mci)
        want = model.SecurityGroupSpec(name=names.groups[0], network=names.network, rules=rules, **common)
    else:
        want = model.KeySpec(name=names.key, public_key=group.public_key, **common)
    labels = {model.MADE_FOR: mci.uid, model.SHARED: "yes"} | ({OWNED_BY: mci.uid} if own else {})
    queue = model.record_id("vNet", names.network) if use.resource_type == "securityGroup" else None
    creation = Creation(model.RESOURCE_LIFECYCLES[use.resource_type].kind, labels=to_json(labels), queue=queue)
    return Request(job.ns, use.key.id, "create", "", CONTROLLER, spec=to_json(want), creates=creation)


def _uses(ns: str, mci: model.MciSpec, planned: Sequence[PlacedSubGroup]) -> list[ResourceUse]:
    """Return the resources that subgroups use."""
    uses: dict[tuple[Key, str], ResourceUse] = {}
    for placed in planned:
        names = with_prerequisite_names(ns, mci, placed.group, placed.connection.name)
        named = model.named_resources(names)
        for resource_type in model.RESOURCE_LIFECYCLES:
            for name in filter(None, named[resource_type]):
                use = ResourceUse(resource_type, name, Key(ns, model.record_id(resource_type, name)), placed, names)
                # another subgroup may name a shared one
                if use.is_made or (use.key, placed.connection.name) not in uses:
                    uses[use.key, placed.connection.name] = use
    return list(uses.values())


def with_prerequisite_names(ns: str, mci: model.MciSpec, group: model.SubGroup, connection: str) -> model.SubGroup:
    """Return a subgroup with the names of its resources: its own, its MCI's, or the shared ones."""
    if group.network:
        return group
    shared = f"{ns}-shared-{connection}"
    key = group.key or (own_key_name(mci, group, connection) if group.public_key else shared)
    return replace(group, network=shared, subnet=shared, groups=(shared_group_name(mci, shared),), key=key)


def shared_group_name(mci: model.MciSpec, shared: str) -> str:
    """Return the name of the security group that MCIs with the same access share at a connection."""
    if is_open_to_all(mci):
        return shared
    if not mci.access_from:
        return f"{shared}-closed"
    digest = blake2b(" ".join(sorted(mci.access_from)).encode(), digest_size=4).hexdigest()
    return f"{shared}-ssh-{digest}"


def is_open_to_all(mci: model.MciSpec) -> bool:
    """Tell whether every port of an MCI's VMs is open to all addresses; it was so before `access_from` existed."""
    return mci.access_from is None or model.EVERYBODY in mci.access_from


def shared_rules(mci: model.MciSpec) -> tuple[model.FirewallRule, ...]:
    """Return the rules of the shared security group: closed, but for SSH from where the caller says."""
    if is_open_to_all(mci):
        return OPEN_RULES
    return tuple(model.FirewallRule(SSH_PORT, "tcp", cidr=cidr) for cidr in sorted(mci.access_from or ()))


def representatives(planned: Sequence[PlacedSubGroup]) -> list[PlacedSubGroup]:
    """Return one subgroup for each set of resources: 400 subgroups may share the resources of a few connections."""
    chosen: dict[tuple[object, ...], PlacedSubGroup] = {}
    for placed in planned:
        group = placed.group
        shared = group.network, group.subnet, group.groups, group.key, group.public_key
        chosen.setdefault((placed.connection.name, *shared), placed)
    return list(chosen.values())
