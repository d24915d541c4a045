"""The records of the ovc domain: the spec of each object, and the state that the domain keeps for it.

A spec is what the caller asked for. `seen` is what the domain keeps: where a VM runs, which disks it has, since when an
object is in the recycle bin. Only transactions that accept or end an action change it, so that it fits the state.
"""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, DISK, IMAGE, LIFECYCLES, NODE, VM
from stateward.lifecycle import DAY, TRANSITIONAL, Lifecycle
from stateward.naming import END, title_pattern
from stateward.store.records import Object
from stateward.validation_texts import bad_input, describe_pattern

IMAGE_SOURCE = describe_pattern(
    rf"^[A-Za-z0-9][A-Za-z0-9._-]*{END}", "a name of letters, digits and . _ -, that begins with a letter or digit"
)
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=100, pattern=title_pattern())]
Gib: TypeAlias = Annotated[int, Meta(ge=1, le=2000)]
DriverName: TypeAlias = Literal["simulated", "process", "qemu"]
HOST_DRIVERS = frozenset({"process", "qemu"})
"""The drivers whose machines are processes on the server's own host."""

HOST_GRANT = "host granted"
"""The fact that an administrator of all namespaces registers the node, so that it may use one of these drivers."""

VmAction: TypeAlias = Literal["move", "stop"]

RETENTION_S = 7 * DAY
MAX_DISKS = 25
"""The most disks of a VM, its boot disk included."""

BUILT_IN_IMAGE = "tick"
"""The image that every node has: a guest that counts the seconds on its console."""

S = TypeVar("S", bound=Struct)


# --- specs -----------------------------------------------------------------------------------------------------------


class AccountSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """An account; its deleted objects stay in the recycle bin for `retention` seconds."""

    name: Name
    retention: Annotated[float, Meta(ge=0.0, le=3650 * DAY)] = RETENTION_S


class CloudspaceSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A cloudspace of an account."""

    name: Name
    account: str


class OvcVmSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A VM in a cloudspace, from an image or as a clone of another VM."""

    name: Name
    account: str
    cloudspace: str
    image: str
    size: Annotated[str, Meta(max_length=40)] = "tiny"
    gib: Gib = 1
    clone_of: str = ""


class DiskSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A disk of an account."""

    name: Name
    account: str
    gib: Gib = 1
    boot: bool = False


class ImageSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """An image of an account, from the built-in guest or from a file of the library."""

    name: Name
    account: str
    source: Annotated[str, Meta(max_length=200, pattern=IMAGE_SOURCE)] = BUILT_IN_IMAGE


class NodeSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A node that runs VMs, and its driver."""

    name: Name
    driver: DriverName = "simulated"
    options: dict[str, str] = {}


OvcSpec: TypeAlias = AccountSpec | CloudspaceSpec | OvcVmSpec | DiskSpec | ImageSpec | NodeSpec


# --- state -----------------------------------------------------------------------------------------------------------


class BinEntry(Struct, frozen=True, omit_defaults=True):
    """An entry of the recycle bin: since when, and the parent with which the object was deleted, if any."""

    since: float
    along: str = ""


class Seen(Struct, frozen=True, omit_defaults=True):
    """The state of any object. `closing`: its queue is being stopped."""

    closing: bool = False
    bin: BinEntry | None = None


class FileBackedSeen(Seen, frozen=True, omit_defaults=True):
    """The state of an object with files. `scoped`: their names contain its namespace, as those of all new objects."""

    scoped: bool = False


class PlacedMachine(Struct, frozen=True):
    """A machine on a node, by its key there."""

    node: str
    machine: str


class PlacementSeen(Seen, frozen=True, omit_defaults=True):
    """Placement: the node, the machine's key there (empty: no power), and the node that it moves `to`.

    `stale_machines` are machines that failures may have left behind.
    """

    node: str = ""
    machine: str = ""
    to: str = ""
    stale_machines: tuple[PlacedMachine, ...] = field(default=(), name="leftovers")


class OvcVmSeen(PlacementSeen, frozen=True, omit_defaults=True):
    """The placement of a VM, its disks with their slots, and its clones."""

    disks: dict[str, int] = {}
    clones: tuple[str, ...] = ()


class CloudspaceSeen(PlacementSeen, frozen=True, omit_defaults=True):
    """The placement of a cloudspace's virtual firewall."""


class DiskSeen(FileBackedSeen, frozen=True, omit_defaults=True):
    """The VM and slot of a disk, and the state that it had when the VM's operation took hold of it."""

    vm: str = ""
    slot: int = 0
    held_from: str = ""


class ImageSeen(FileBackedSeen, frozen=True, omit_defaults=True):
    """The number of VMs that use an image."""

    users: int = 0


class DepartedVm(Struct, frozen=True):
    """How a VM left a node in maintenance (moved or stopped), and its state before."""

    how: VmAction
    state: str


class NodeReport(Struct, frozen=True):
    """What became of the VMs of a node in its latest maintenance, enable or decommission."""

    action: str
    done: tuple[str, ...] = ()
    failed: dict[str, str] = {}


class OrphanId(Struct, frozen=True, order=True):
    """A machine on a node, or a file among the disks, that no object owns."""

    what: Literal["machine", "file"]
    name: str


class OvcOrphan(Struct, frozen=True):
    """An orphan, and since when it is known."""

    id: OrphanId = field(name="who")
    since: float


class NodeSeen(FileBackedSeen, frozen=True, omit_defaults=True):
    """The VMs that return to a node, its latest report, and the time of the latest check of its machines.

    `trouble` says why the check did not see all machines; `orphans` are machines and files that no object owns.
    """

    away: dict[str, DepartedVm] = {}
    report: NodeReport | None = None
    looked: float = 0.0
    trouble: str = ""
    orphans: tuple[OvcOrphan, ...] = field(default=(), name="strangers")


class NodeFacts(Struct, frozen=True):
    """The result of a node's action."""

    report: NodeReport


SPECS: Mapping[str, type[Struct]] = {
    VM.kind: OvcVmSpec,
    CLOUDSPACE.kind: CloudspaceSpec,
    ACCOUNT.kind: AccountSpec,
    DISK.kind: DiskSpec,
    IMAGE.kind: ImageSpec,
    NODE.kind: NodeSpec,
}
SEENS: Mapping[str, type[Seen]] = {
    VM.kind: OvcVmSeen,
    CLOUDSPACE.kind: CloudspaceSeen,
    ACCOUNT.kind: Seen,
    DISK.kind: DiskSeen,
    IMAGE.kind: ImageSeen,
    NODE.kind: NodeSeen,
}


def short_kind(kind: str) -> str:
    """Return the name of a kind inside the domain: `vm` for `ovc.vm`."""
    return kind.removeprefix("ovc.")


def read_spec(record: Object, kind: type[S]) -> S:
    """Return an object's spec."""
    return msgspec.json.decode(record.spec, type=kind)


def parse_spec(spec: str | None, kind: type[S]) -> S:
    """Read the spec of a request; raises `BadInput` with the field that is wrong."""
    try:
        return msgspec.json.decode(spec or "{}", type=kind)
    except msgspec.ValidationError as error:
        raise bad_input(error, kind, "spec") from error


def read_seen(record: Object) -> Seen:
    """Decode the `seen` record of an object of any kind."""
    return msgspec.json.decode(record.seen, type=SEENS[record.kind])


def _seen_reader(kind: type[S]) -> Callable[[Object], S]:
    decoder = msgspec.json.Decoder(kind)
    return lambda record: decoder.decode(record.seen)


vm_seen = _seen_reader(OvcVmSeen)
cloudspace_seen = _seen_reader(CloudspaceSeen)
disk_seen = _seen_reader(DiskSeen)
image_seen = _seen_reader(ImageSeen)
node_seen = _seen_reader(NodeSeen)
"""Each decodes the `seen` record of an object of one kind."""


def file_name(record: Object) -> str:
    """Return the name of the file of a disk or an image, or of the folder of a node, without its suffix.

    Two namespaces may have objects with the same id; no id contains `=`. Objects that were created before file names
    contained namespaces keep their names, because backing files refer to paths. Only guards write `seen`, no caller.
    """
    if not msgspec.json.decode(record.seen, type=FileBackedSeen).scoped:
        return record.id
    return f"{record.id}={blake2b(record.ns.encode(), digest_size=8).hexdigest()}"


def boot_disk_id(vm: str) -> str:
    """Return the id of a VM's boot disk."""
    return f"disk-{vm.removeprefix('vm-')}-boot"


def added_disk_id(op: str) -> str:
    """Return the id of the disk that an operation adds to its VM."""
    return f"disk-{op[-12:]}"


def machine_key(vm: str, op: str) -> str:
    """Return the key of the machine that an operation starts for a VM or a firewall; each operation has its own."""
    return f"{vm}-{op[-8:]}"


def machine_owner(machine: str) -> str:
    """Return the id of the VM or cloudspace from the key of its machine."""
    return machine.rpartition("-")[0]


TRANSITION_STATES: tuple[str, ...] = tuple(
    dict.fromkeys(
        state.word
        for lifecycle in LIFECYCLES
        for state in lifecycle.declaration.states
        if state.state_class is TRANSITIONAL
    )
)
"""Every transition state of any object; all other states are static."""


OBJECT_TYPES: dict[str, Lifecycle] = {lifecycle.kind.removeprefix("ovc."): lifecycle for lifecycle in LIFECYCLES}
