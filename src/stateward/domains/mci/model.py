"""Records of the mci domain: specs (what is wanted) and `seen` records (what the provider showed last).

Field names are stored as JSON and must not change.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from stateward.domains.mci.lifecycle import SECURITY_GROUP, SSH_KEY, VNET
from stateward.drivers import Observation, ResourceKind
from stateward.lifecycle import Lifecycle
from stateward.store.records import Object

T = TypeVar("T")

DEPLOYMENT_NS = "(mci)"
"""The namespace of the records of the deployment: namespaces, connections and logged requests."""

Policy = Literal["continue", "rollback", "refine"]

RESOURCE_LIFECYCLES: dict[str, Lifecycle] = {"vNet": VNET, "securityGroup": SECURITY_GROUP, "sshKey": SSH_KEY}
"""The lifecycles of resources, by their type in the Tumblebug API."""

RESOURCE_TYPES = {lifecycle.kind: word for word, lifecycle in RESOURCE_LIFECYCLES.items()}

EVERYBODY = "*"
"""Stands for every port and every address in `MciSpec.access_from`; else it has ranges of addresses, for SSH."""

WORLD = ("0.0.0.0/0", "::/0")
"""The ranges that contain all addresses."""

MADE_FOR, SHARED = "made-for", "shared"
"""Labels of resources that were created for an MCI: the uid of the MCI, and that other MCIs may share them."""


class CloudConnection(Struct, frozen=True, omit_defaults=True):
    """A provider's region with the driver for it. The credential is a reference, never a secret.

    `namespaces` may create VMs and resources there (`*`: all); None stands for the default of the driver. A removed
    built-in connection stays as a disabled record.
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
        """The lane of all operations at this connection."""
        return f"{self.provider}/{self.region}"


class SpecRecord(Struct, frozen=True):
    """A machine size at a connection."""

    id: str
    connection: str
    csp_name: str
    vcpu: int = 1
    memory_gib: float = 1.0
    cost: float = 0.0  # dollars an hour
    description: str = ""
    architecture: str = "x86_64"
    disk_gib: float = 0.0  # 0: it has none of its own, or it is not known
    gpus: int = 0
    gpu_model: str = ""
    gpu_memory_gib: float = 0.0


class ImageRecord(Struct, frozen=True):
    """A machine image at a connection, or at all connections of a provider (empty)."""

    id: str
    connection: str
    csp_name: str
    system: str = ""
    description: str = ""
    architecture: str = "x86_64"


class TumblebugSetting(Struct, frozen=True):
    """A setting of Tumblebug's own server, such as the address of CB-Spider; it steers nothing here."""

    name: str
    value: str = ""


class Subnet(Struct, frozen=True):
    """A subnet of a network."""

    name: str
    cidr: str
    zone: str = ""
    description: str = ""


class FirewallRule(Struct, frozen=True):
    """A firewall rule of a security group."""

    ports: str
    protocol: str = "tcp"
    direction: str = "inbound"
    cidr: str = "0.0.0.0/0"


ALL_PORTS = "0-65535"


def single_rules(rules: Iterable[FirewallRule]) -> tuple[FirewallRule, ...]:
    """Return rules with one range of ports each, and none twice; no ports mean all of them."""
    single = (
        replace(rule, ports="" if ports == ALL_PORTS else ports)
        for rule in rules
        for ports in rule.ports.replace(" ", "").split(",")
    )
    return tuple(dict.fromkeys(single))


class ResourceIdentity(Struct, frozen=True):
    """The fields that all resource specs share."""

    name: str
    uid: str
    connection: str
    provider: str
    region: str

    @property
    def lane(self) -> str:
        """The lane of all operations on it: its provider and region."""
        return f"{self.provider}/{self.region}"


class NetworkSpec(ResourceIdentity, frozen=True, omit_defaults=True):
    """The spec of a network."""

    cidr: str = "10.0.0.0/16"
    subnets: tuple[Subnet, ...] = ()
    description: str = ""


class SecurityGroupSpec(ResourceIdentity, frozen=True, omit_defaults=True):
    """The spec of a security group."""

    network: str
    rules: tuple[FirewallRule, ...] = ()
    description: str = ""


class KeySpec(ResourceIdentity, frozen=True, omit_defaults=True):
    """The spec of an SSH key; only the public key is stored, and the provider creates one if it is missing."""

    public_key: str = ""
    description: str = ""


ResourceSpec = NetworkSpec | SecurityGroupSpec | KeySpec


class ResourceSeen(Struct, frozen=True, omit_defaults=True):
    """A resource as the provider showed it."""

    native_id: str = ""
    subnets: dict[str, str] = {}  # name -> the provider's id
    missing: tuple[str, ...] = ()  # parts that the provider no longer shows


class VmChoice(Struct, frozen=True, omit_defaults=True):
    """Which VMs of an MCI are meant: one, those of a subgroup, those with labels; all without a condition."""

    vm: str = ""
    group: str = ""
    labels: dict[str, str] = {}


class PostCommand(Struct, frozen=True, omit_defaults=True):
    """Commands that run on each VM after its creation, or on those that are chosen."""

    user: str = ""
    commands: tuple[str, ...] = ()
    minutes: float = 30.0
    choice: VmChoice = VmChoice()
    go_on: bool = False  # the next phase runs, even if this one failed on some VM


class SubGroup(Struct, frozen=True, omit_defaults=True):
    """A subgroup: VMs with the same spec, image and connection."""

    name: str
    size: int
    spec: str  # the spec's id
    image: str
    connection: str = ""  # empty: the spec's connection
    network: str = ""  # names of resources; empty: shared ones are created
    subnet: str = ""
    groups: tuple[str, ...] = ()
    key: str = ""
    public_key: str = ""  # the public key of a key pair that belongs to the MCI, if no key is named
    user: str = ""
    disk_type: str = ""
    disk_gib: int | None = None
    zone: str = ""
    label: dict[str, str] = {}
    description: str = ""
    post_phases: tuple[PostCommand, ...] = ()  # for the VMs of this subgroup alone, one after the other


class Scale(Struct, frozen=True):
    """Arguments of scaling: a subgroup and a number of VMs."""

    group: str
    count: int


class MachineToAdopt(Struct, frozen=True, omit_defaults=True):
    """A machine that others have created at a connection, by the provider's id, and the subgroup that it joins."""

    connection: str
    native_id: str
    group: str
    user: str = ""  # of logins, if it is known
    label: dict[str, str] = {}
    description: str = ""


class Adoption(Struct, frozen=True):
    """Arguments of an adoption."""

    machines: tuple[MachineToAdopt, ...]


class Deregistration(Struct, frozen=True):
    """Arguments of a deregistration: the names of VMs."""

    vms: tuple[str, ...]


class MachineClaim(Struct, frozen=True):
    """Which VM has adopted a machine, or is about to: a machine has one VM at most in the whole deployment."""

    native_id: str
    lane: str
    ns: str
    vm: str  # the id of the object
    uid: str


class MciSpec(Struct, frozen=True, omit_defaults=True):
    """The spec of an MCI."""

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
    post_phases: tuple[PostCommand, ...] = ()  # run after `post_command`, one after the other
    access_from: tuple[str, ...] | None = (
        None  # who may connect to VMs in shared groups; None: of a request, the default; of an older MCI, open to all
    )


class CommandRun(Struct, frozen=True, omit_defaults=True):
    """One command on one VM: its output, and its exit status if it ended."""

    written: str = ""
    status: int | None = None
    stderr: str = ""  # empty where a driver does not tell it from the output
    written_cut: int = 0  # bytes that are left out before `written`
    stderr_cut: int = 0

    @property
    def stdout_text(self) -> str:
        """The output, with a note about the part that is left out."""
        return _with_note(self.written, self.written_cut)

    @property
    def stderr_text(self) -> str:
        """The errors, with a note about the part that is left out."""
        return _with_note(self.stderr, self.stderr_cut)


def _with_note(text: str, cut: int) -> str:
    return f"({cut} bytes left out)\n{text}" if cut else text


CommandRuns = tuple[CommandRun, ...] | str
"""The post-commands of a VM, in order; old records have one text instead."""


class VmCommandResult(Struct, frozen=True, omit_defaults=True):
    """The commands on one VM in order, why the last one failed or none could run, and the VM's address.

    `unstreamed` is how many bytes of the output were not told as progress, because there was too much of it.
    """

    runs: tuple[CommandRun, ...] = ()
    error: str = ""
    address: str = ""
    unstreamed: int = 0


class CommandSpec(Struct, frozen=True, omit_defaults=True):
    """The spec of a command: the VMs of an MCI, and what is run on each of them, or the file that is copied there."""

    mci: str
    vms: tuple[str, ...]  # names
    commands: tuple[str, ...] = ()
    user: str = ""  # empty: that of each VM
    minutes: float = 30.0
    path: str = ""  # where the file goes
    file: str = ""  # its name
    mode: str = ""  # its permissions in octal digits; empty: those of a new file
    uids: tuple[str, ...] = ()  # of the VMs, in their order; older commands have none


Secret = Annotated[str, Meta(extra_json_schema={"writeOnly": True})]


class CommandInput(Struct, frozen=True, omit_defaults=True):
    """The input of a command that nobody sees again: environment variables, and the content of a file in base64."""

    secrets: dict[str, Secret] = {}
    content: Secret = ""


class CommandSeen(Struct, frozen=True, omit_defaults=True):
    """The results of a command, by VM."""

    results: dict[str, VmCommandResult] = {}


class PhaseSeen(Struct, frozen=True, omit_defaults=True):
    """One phase of the post-commands, with its results; it did not run if an earlier one failed."""

    command: PostCommand
    ran: bool = False
    results: dict[str, CommandRuns] = {}  # by VM
    failed: dict[str, str] = {}  # reasons, by VM


class MciSeen(Struct, frozen=True, omit_defaults=True):
    """The result of an MCI's creation."""

    errors: tuple[str, ...] = ()
    results: dict[str, CommandRuns] = {}  # results of the post-commands, by VM
    failed: dict[str, str] = {}  # reasons of failed post-commands, by VM
    asked: dict[str, int] = {}  # the requested subgroups with their sizes; some may be removed by now
    phases: tuple[PhaseSeen, ...] = ()


class VmSpec(Struct, frozen=True, omit_defaults=True):
    """The spec of a VM; `uid` is its name at the provider and never changes."""

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
    access_key: str = ""  # the namespace's own public key, by which the server logs in; empty: it could not be made
    parts: dict[str, str] = {}  # resource kind -> the provider's id
    user: str = ""
    disk_type: str = ""
    disk_gib: int | None = None
    label: dict[str, str] = {}
    description: str = ""
    adopted: str = ""  # the provider's id of a machine that others have created; empty: it was created here

    @property
    def lane(self) -> str:
        """The lane of all operations on it: its provider and region."""
        return f"{self.provider}/{self.region}"


class VmTarget(Struct, frozen=True):
    """The fields of a VM spec that identify its machine; small, because one action may be for 10,000 VMs."""

    uid: str
    connection: str


class VmCost(Struct, frozen=True):
    """What a VM costs in an hour; small, like a `VmTarget`."""

    cost: float = 0.0


class VmSeen(Struct, frozen=True, omit_defaults=True):
    """A VM as the provider showed it last."""

    native_id: str = ""
    native_state: str = ""
    name: str = ""
    public_ip: str = ""
    private_ip: str = ""
    ssh_port: int = 22  # 0: no login
    host_key: str = ""  # the public key of its SSH server, where the provider knows it
    left: str = ""  # of a removed VM: the machine that may be left at the provider


ADOPTED_KEY = "adopted-"
"""The prefix of the keys of machines that others have created: an orphan with such a key is released, never ended."""


def vm_id(mci: str, name: str) -> str:
    """Return the object id of a VM: names are unique within an MCI only and contain no dot."""
    return f"{mci}.{name}"


def record_id(kind: str, name: str) -> str:
    """Return the object id of a record: records share a namespace with MCIs, whose names contain no colon."""
    return f"{kind}:{name}"


def subnet_key(uid: str, name: str) -> str:
    """Return the key of a subnet at the provider."""
    return f"{uid}-{name}"


def named_resources(of: SubGroup | VmSpec) -> dict[str, tuple[str, ...]]:
    """Return the names of the resources, the spec and the image of a subgroup or a VM, by type; some may be empty."""
    resources = {"vNet": (of.network,), "securityGroup": of.groups, "sshKey": (of.key,)}
    return {**resources, "spec": (of.spec,), "image": (of.image,)}


def spec_reader(record: type[T]) -> Callable[[Object], T]:
    """Return a function that decodes the spec of an object."""
    decoder = msgspec.json.Decoder(record)
    return lambda stored: decoder.decode(stored.spec)


def seen_reader(record: type[T]) -> Callable[[Object], T]:
    """Return a function that decodes the `seen` record of an object."""
    decoder = msgspec.json.Decoder(record)
    return lambda stored: decoder.decode(stored.seen)


mci_of, mci_seen = spec_reader(MciSpec), seen_reader(MciSeen)
vm_of, vm_seen = spec_reader(VmSpec), seen_reader(VmSeen)
command_of, command_seen = spec_reader(CommandSpec), seen_reader(CommandSeen)
vm_target, vm_cost = spec_reader(VmTarget), spec_reader(VmCost)
resource_identity, resource_seen = spec_reader(ResourceIdentity), seen_reader(ResourceSeen)
network_of, security_group_of, key_of = spec_reader(NetworkSpec), spec_reader(SecurityGroupSpec), spec_reader(KeySpec)
connection_record, setting_record = spec_reader(CloudConnection), spec_reader(TumblebugSetting)
machine_claim = spec_reader(MachineClaim)
spec_record, image_record = spec_reader(SpecRecord), spec_reader(ImageRecord)
"""The readers of stored records: each takes an object and returns its record."""


def native_ids(subnet: str, network: Object | None, groups: Iterable[Object], key: Object | None) -> dict[str, str]:
    """Return the provider's ids of the resources of a VM, by resource kind."""
    net = ResourceSeen() if network is None else resource_seen(network)
    natives = {
        ResourceKind.NETWORK: net.native_id,
        ResourceKind.SUBNET: net.subnets.get(subnet) or next(iter(net.subnets.values()), ""),
        ResourceKind.SECURITY_GROUP: ",".join(resource_seen(group).native_id for group in groups),
        ResourceKind.SSH_KEY: "" if key is None else resource_seen(key).native_id,
    }
    return {str(kind): native for kind, native in natives.items() if native}


def seen_of(shown: Observation) -> VmSeen:
    """Return the `seen` record of an observation."""
    return VmSeen(
        native_id=shown.native_id,
        native_state=shown.native_state,
        name=shown.name,
        public_ip=shown.public_ip,
        private_ip=shown.private_ip,
        ssh_port=shown.ssh_port,
        host_key=shown.host_key,
    )


def is_chosen(record: Object, choice: VmChoice) -> bool:
    """Tell whether a VM is one of those that are chosen."""
    vm = vm_of(record)
    labels = {**msgspec.json.decode(record.labels, type=dict[str, str]), **vm.label, "sys.id": vm.name}
    return (
        choice.vm in ("", vm.name)
        and choice.group in ("", vm.group)
        and all(labels.get(name) == value for name, value in choice.labels.items())
    )
