"""The records of the ovc domain: what is wanted of each object, and what is known of it.

A spec is what was asked for. `seen` is what the domain itself keeps: where a VM is, which disks it has, since when
something lies in the recycle bin. It is changed only inside the engine's transactions, where an action is accepted or
has ended, so that it is never another than the state says.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, DISK, IMAGE, LIFECYCLES, NODE, VM
from stateward.errors import BadInput
from stateward.lifecycle import DAY, TRANSITIONAL, Lifecycle
from stateward.naming import END, title_pattern
from stateward.store.records import Object

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=100, pattern=title_pattern())]
Gib: TypeAlias = Annotated[int, Meta(ge=1, le=2000)]
DriverName: TypeAlias = Literal["simulated", "process", "qemu"]
HOST_DRIVERS = frozenset({"process", "qemu"})
"""The drivers whose machines are programs on the server's own host."""

VmAction: TypeAlias = Literal["move", "stop"]

RETENTION_S = 7 * DAY
MAX_DISKS = 25
"""How many disks a VM may have, its boot disk included."""

BUILT_IN_IMAGE = "tick"
"""The image that every node has: a guest that counts the seconds on its console."""

S = TypeVar("S", bound=Struct)


# --- what is wanted --------------------------------------------------------------------------------------------------


class AccountSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """An account; what it deletes lies in the recycle bin for `retention` seconds."""

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
    source: Annotated[str, Meta(max_length=200, pattern=rf"^[A-Za-z0-9][A-Za-z0-9._-]*{END}")] = BUILT_IN_IMAGE


class NodeSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A machine that carries VMs, and by which driver it does."""

    name: Name
    driver: DriverName = "simulated"
    options: dict[str, str] = {}


# --- what is known ---------------------------------------------------------------------------------------------------


class BinEntry(Struct, frozen=True, omit_defaults=True):
    """A stay in the recycle bin: since when, and with whom it went down if not on its own."""

    since: float
    along: str = ""


class Seen(Struct, frozen=True, omit_defaults=True):
    """What is known of any object. `closing`: its queue is being stopped."""

    closing: bool = False
    bin: BinEntry | None = None


class FileBackedSeen(Seen, frozen=True, omit_defaults=True):
    """What is known of an object with files. `scoped`: their names carry its namespace, as those of all new objects."""

    scoped: bool = False


class PlacedMachine(Struct, frozen=True):
    """A machine on a node, by its key there."""

    node: str
    machine: str


class PlacementSeen(Seen, frozen=True, omit_defaults=True):
    """Where something that runs is: on which node, as which machine there (none: it has no power), and where it moves.

    `stale_machines` are machines that may be left of what has failed.
    """

    node: str = ""
    machine: str = ""
    to: str = ""
    stale_machines: tuple[PlacedMachine, ...] = field(default=(), name="leftovers")


class OvcVmSeen(PlacementSeen, frozen=True, omit_defaults=True):
    """Where a VM is, its disks with their slots, and its clones."""

    disks: dict[str, int] = {}
    clones: tuple[str, ...] = ()


class CloudspaceSeen(PlacementSeen, frozen=True, omit_defaults=True):
    """Where a cloudspace's virtual firewall is."""


class DiskSeen(FileBackedSeen, frozen=True, omit_defaults=True):
    """Which VM a disk belongs to, in which slot, and from which state the VM's action took it along."""

    vm: str = ""
    slot: int = 0
    held_from: str = ""


class ImageSeen(FileBackedSeen, frozen=True, omit_defaults=True):
    """How many VMs need an image."""

    users: int = 0


class DepartedVm(Struct, frozen=True):
    """How a node in maintenance parted with a VM, and what state that was in."""

    how: VmAction
    state: str


class NodeReport(Struct, frozen=True):
    """What became of the VMs of a node, when it was last emptied or filled again."""

    action: str
    done: tuple[str, ...] = ()
    failed: dict[str, str] = {}


class OrphanId(Struct, frozen=True, order=True):
    """A machine on a node, or a file among the disks, that no object owns."""

    what: Literal["machine", "file"]
    name: str


class OvcOrphan(Struct, frozen=True):
    """Something that nobody owns, and since when that is known."""

    id: OrphanId = field(name="who")
    since: float


class NodeSeen(FileBackedSeen, frozen=True, omit_defaults=True):
    """The VMs that are to come back to a node, the latest report, and the latest look at its machines.

    `trouble` says why that look did not show all of them, `orphans` what it showed that nobody owns.
    """

    away: dict[str, DepartedVm] = {}
    report: NodeReport | None = None
    looked: float = 0.0
    trouble: str = ""
    orphans: tuple[OvcOrphan, ...] = field(default=(), name="strangers")


class NodeFacts(Struct, frozen=True):
    """What a node's action tells of its VMs when it ends."""

    report: NodeReport
    away: dict[str, DepartedVm] = {}


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
    """Return a kind's name inside the domain: `vm` for `ovc.vm`."""
    return kind.removeprefix("ovc.")


def read_spec(found: Object, kind: type[S]) -> S:
    """Return an object's spec."""
    return msgspec.json.decode(found.spec, type=kind)


def parse_spec(spec: str | None, kind: type[S]) -> S:
    """Read the spec of a request; raises `BadInput` with the field that is wrong."""
    try:
        return msgspec.json.decode(spec or "{}", type=kind)
    except msgspec.ValidationError as error:
        raise BadInput("spec", spec, f"a spec of this kind: {error}") from error


def read_seen(found: Object) -> Seen:
    """Return what is known of an object of any kind."""
    return msgspec.json.decode(found.seen, type=SEENS[found.kind])


def vm_seen(found: Object) -> OvcVmSeen:
    """Return what is known of a VM."""
    return msgspec.json.decode(found.seen, type=OvcVmSeen)


def cloudspace_seen(found: Object) -> CloudspaceSeen:
    """Return what is known of a cloudspace."""
    return msgspec.json.decode(found.seen, type=CloudspaceSeen)


def disk_seen(found: Object) -> DiskSeen:
    """Return what is known of a disk."""
    return msgspec.json.decode(found.seen, type=DiskSeen)


def image_seen(found: Object) -> ImageSeen:
    """Return what is known of an image."""
    return msgspec.json.decode(found.seen, type=ImageSeen)


def node_seen(found: Object) -> NodeSeen:
    """Return what is known of a node."""
    return msgspec.json.decode(found.seen, type=NodeSeen)


def file_name(found: Object) -> str:
    """Return the name of the file of a disk or an image, or of the folder of a node, without its suffix.

    Two namespaces may have objects of one id. No id has the sign `=`. Objects that were made before files had the names
    of namespaces keep theirs: backing files name paths. Only guards write what is known of an object, no caller does.
    """
    if not msgspec.json.decode(found.seen, type=FileBackedSeen).scoped:
        return found.id
    return f"{found.id}={blake2b(found.ns.encode(), digest_size=8).hexdigest()}"


def boot_disk_id(vm: str) -> str:
    """Return the id of a VM's boot disk."""
    return f"disk-{vm.removeprefix('vm-')}-boot"


def added_disk_id(op: str) -> str:
    """Return the id of the disk that an operation adds to its VM."""
    return f"disk-{op[-12:]}"


def machine_key(vm: str, op: str) -> str:
    """Return the key of the machine that an operation starts for a VM, or a firewall: another one each time."""
    return f"{vm}-{op[-8:]}"


def machine_owner(machine: str) -> str:
    """Return the id of the VM, or the cloudspace, whose machine this is by its key."""
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
