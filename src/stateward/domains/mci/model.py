"""What the mci domain keeps: in an object's spec what is wanted, in `seen` what the provider showed last."""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from stateward.domains.mci.lifecycle import SECURITY_GROUP, SSH_KEY, VNET
from stateward.drivers import Observation, ResourceKind
from stateward.lifecycle import Lifecycle
from stateward.store.records import Object

DEPLOYMENT_NS = "(mci)"
"""The namespace of what belongs to the deployment: namespaces and connections."""

Policy = Literal["continue", "rollback", "refine"]

RESOURCE_LIFECYCLES: dict[str, Lifecycle] = {"vNet": VNET, "securityGroup": SECURITY_GROUP, "sshKey": SSH_KEY}
"""The kinds of parts, by what the wire calls them."""

RESOURCE_TYPES = {lifecycle.kind: word for word, lifecycle in RESOURCE_LIFECYCLES.items()}

MADE_FOR, SHARED = "made-for", "shared"
"""The labels of what a preparation has made: for which MCI, and that others may use it."""


class CloudConnection(Struct, frozen=True, omit_defaults=True):
    """A way to a cloud: a provider's region, with a driver behind it. The credential is a reference, never a secret.

    `namespaces` may make things there (`*`: all); None stands for what the driver starts with. A built-in connection
    that was removed stays as a record that is not enabled.
    """

    name: str
    provider: str
    region: str
    zone: str = ""
    driver: str = "simulated"
    credential: str = ""
    options: dict[str, str] = {}
    namespaces: tuple[str, ...] | None = None
    enabled: bool = True

    @property
    def lane(self) -> str:
        """The lane of whatever is done there."""
        return f"{self.provider}/{self.region}"


class SpecRecord(Struct, frozen=True):
    """A size of machine at a connection."""

    id: str
    connection: str
    csp_name: str
    vcpu: int = 1
    memory_gib: float = 1.0
    cost: float = 0.0  # dollars an hour
    description: str = ""


class ImageRecord(Struct, frozen=True):
    """What a machine starts from, at a connection, or at any of a provider (empty)."""

    id: str
    connection: str
    csp_name: str
    system: str = ""
    description: str = ""


class Subnet(Struct, frozen=True):
    """A part of a network."""

    name: str
    cidr: str
    zone: str = ""
    description: str = ""


class FirewallRule(Struct, frozen=True):
    """What a security group lets through."""

    ports: str
    protocol: str = "tcp"
    direction: str = "inbound"
    cidr: str = "0.0.0.0/0"


class NetworkSpec(Struct, frozen=True, omit_defaults=True):
    """A network that is wanted."""

    name: str
    uid: str
    connection: str
    provider: str
    region: str
    cidr: str = "10.0.0.0/16"
    subnets: tuple[Subnet, ...] = ()
    description: str = ""


class SecurityGroupSpec(Struct, frozen=True, omit_defaults=True):
    """A security group that is wanted."""

    name: str
    uid: str
    connection: str
    provider: str
    region: str
    network: str
    rules: tuple[FirewallRule, ...] = ()
    description: str = ""


class KeySpec(Struct, frozen=True, omit_defaults=True):
    """A key pair that is wanted; only the public half is ever kept, and the provider makes one where there is none."""

    name: str
    uid: str
    connection: str
    provider: str
    region: str
    public_key: str = ""
    description: str = ""


class ResourceIdentity(Struct, frozen=True):
    """What all parts have in common."""

    name: str
    uid: str
    connection: str
    provider: str
    region: str


class ResourceSeen(Struct, frozen=True, omit_defaults=True):
    """A part as the provider knows it."""

    native_id: str = ""
    subnets: dict[str, str] = {}  # name -> the provider's id
    missing: tuple[str, ...] = ()  # what of it the provider does not show any more


class SubGroup(Struct, frozen=True, omit_defaults=True):
    """VMs of one make."""

    name: str
    size: int
    spec: str  # the spec's id
    image: str
    connection: str = ""  # empty: the spec's
    network: str = ""  # names of parts; empty: shared ones are made
    subnet: str = ""
    groups: tuple[str, ...] = ()
    key: str = ""
    public_key: str = ""  # the public half of a key that is made for the MCI, where none is named
    user: str = ""
    disk_type: str = ""
    disk_gib: int | None = None
    zone: str = ""
    label: dict[str, str] = {}
    description: str = ""


class Scale(Struct, frozen=True):
    """By how much a subgroup is to grow or shrink."""

    group: str
    count: int


class PostCommand(Struct, frozen=True, omit_defaults=True):
    """What is run on every VM after its creation."""

    user: str = ""
    commands: tuple[str, ...] = ()
    minutes: float = 30.0


class MciSpec(Struct, frozen=True, omit_defaults=True):
    """An MCI that is wanted."""

    name: str
    uid: str
    groups: tuple[SubGroup, ...]
    dynamic: bool = True
    hold: bool = False
    policy: Policy = "continue"
    label: dict[str, str] = {}
    system_label: str = ""
    description: str = ""
    install_mon_agent: str = "no"
    placement: str = ""
    post_command: PostCommand | None = None


class CommandRun(Struct, frozen=True, omit_defaults=True):
    """One post-command on one VM: its output, and its exit status where it ended."""

    written: str = ""
    status: int | None = None


CommandRuns = tuple[CommandRun, ...] | str
"""The post-commands of a VM, in order; a text in records that were written before each had a result of its own."""


class MciSeen(Struct, frozen=True, omit_defaults=True):
    """What became of an MCI's creation."""

    errors: tuple[str, ...] = ()
    results: dict[str, CommandRuns] = {}  # what became of the post-commands, by VM
    failed: dict[str, str] = {}  # and where one failed, why
    asked: dict[str, int] = {}  # the subgroups that were asked for, with their sizes: some may be gone since


class VmSpec(Struct, frozen=True, omit_defaults=True):
    """A VM that is wanted; `uid` is its name at the provider, and never changes."""

    name: str
    uid: str
    mci: str
    group: str
    connection: str
    provider: str
    region: str
    spec: str
    image: str
    csp_spec: str
    csp_image: str
    zone: str = ""
    cost: float = 0.0
    network: str = ""
    subnet: str = ""
    groups: tuple[str, ...] = ()
    key: str = ""
    parts: dict[str, str] = {}  # part kind -> the provider's id
    user: str = ""
    disk_type: str = ""
    disk_gib: int | None = None
    label: dict[str, str] = {}
    description: str = ""


class VmTarget(Struct, frozen=True):
    """What is read of a VM when something is done to it: an action may be for 10,000."""

    uid: str
    connection: str


class VmSeen(Struct, frozen=True, omit_defaults=True):
    """A VM as the provider showed it last."""

    native_id: str = ""
    native_state: str = ""
    name: str = ""
    public_ip: str = ""
    private_ip: str = ""
    ssh_port: int = 22  # 0: nobody can log in


def vm_id(mci: str, name: str) -> str:
    """Return the id of a VM's object: names are unique within an MCI only, and have no dot in them."""
    return f"{mci}.{name}"


def record_id(kind: str, name: str) -> str:
    """Return the id of a preparation resource's object: they share a namespace with MCIs, whose names have no colon."""
    return f"{kind}:{name}"


def subnet_key(uid: str, name: str) -> str:
    """Return the key of a network's subnet at the provider."""
    return f"{uid}-{name}"


def resource_identity(found: Object) -> ResourceIdentity:
    """Return what all parts have in common, of one of them."""
    return msgspec.json.decode(found.spec, type=ResourceIdentity)


def network_of(found: Object) -> NetworkSpec:
    """Return what is wanted of a network."""
    return msgspec.json.decode(found.spec, type=NetworkSpec)


def resource_seen(found: Object) -> ResourceSeen:
    """Return what was seen of a part."""
    return msgspec.json.decode(found.seen, type=ResourceSeen)


def native_ids(subnet: str, network: Object | None, groups: Iterable[Object], key: Object | None) -> dict[str, str]:
    """Return the provider's ids of the parts that a VM uses, by the kind of the part."""
    net = ResourceSeen() if network is None else resource_seen(network)
    found = {
        ResourceKind.NETWORK: net.native_id,
        ResourceKind.SUBNET: net.subnets.get(subnet) or next(iter(net.subnets.values()), ""),
        ResourceKind.SECURITY_GROUP: ",".join(resource_seen(one).native_id for one in groups),
        ResourceKind.SSH_KEY: "" if key is None else resource_seen(key).native_id,
    }
    return {str(kind): native for kind, native in found.items() if native}


def vm_of(found: Object) -> VmSpec:
    """Return what is wanted of a VM."""
    return msgspec.json.decode(found.spec, type=VmSpec)


def vm_target(found: Object) -> VmTarget:
    """Return which machine a VM is, and at which connection."""
    return msgspec.json.decode(found.spec, type=VmTarget)


def vm_seen(found: Object) -> VmSeen:
    """Return what was seen of a VM."""
    return msgspec.json.decode(found.seen, type=VmSeen)


def mci_of(found: Object) -> MciSpec:
    """Return what is wanted of an MCI."""
    return msgspec.json.decode(found.spec, type=MciSpec)


def mci_seen(found: Object) -> MciSeen:
    """Return what became of an MCI's creation."""
    return msgspec.json.decode(found.seen, type=MciSeen)


def seen_of(shown: Observation) -> VmSeen:
    """Return what is kept of what a provider shows."""
    return VmSeen(shown.native_id, shown.native_state, shown.name, shown.public_ip, shown.private_ip, shown.ssh_port)


def to_builtins(record: Struct) -> Any:  # noqa: ANN401 - JSON
    """Return a record as it is stored."""
    return msgspec.to_builtins(record)
