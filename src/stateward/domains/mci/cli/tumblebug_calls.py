"""Calls to the mci API, and the fields of its responses that commands show. Other fields are ignored."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, field

from stateward.client.url_paths import NamedPart, url_path
from stateward.domains.mci.shared_schemas import NewKeyPair, OrphanMachine, PossibleOrphan, UnmarkedMachine

if TYPE_CHECKING:
    from stateward.client.session import Session

T = TypeVar("T")

WIRE = url_path("tumblebug")
"""The base path of the Tumblebug API; the native routes of the domain are below the base path of Stateward's API."""

NONE = "None"


class VmLocation(Struct, frozen=True):
    """A geographical location."""

    display: str = ""


class SpecEntry(Struct, frozen=True, rename="camel"):
    """A size of machines that is registered in a namespace."""

    name: str
    connection_name: str
    csp_spec_name: str
    vcpu: int = field(name="vCPU", default=1)
    memory_gib: float = field(name="memoryGiB", default=1.0)
    cost_per_hour: float = 0.0


class ImageEntry(Struct, frozen=True, rename="camel"):
    """An image of machines that is registered in a namespace."""

    name: str
    connection_name: str
    csp_image_name: str
    os_type: str = ""


class Vm(Struct, frozen=True, rename="camel"):
    """The fields of a VM that commands show."""

    id: str
    status: str = ""
    sub_group_id: str = ""
    target_action: str = NONE
    native_status: str = ""
    system_message: str = ""
    created_time: str = ""
    public_ip: str = ""
    private_ip: str = ""
    location: VmLocation = VmLocation()


class VmAccessView(Struct, frozen=True, rename="camel"):
    """How a VM is reached."""

    vm_id: str
    public_ip: str = field(name="publicIP", default="")
    private_ip: str = field(name="privateIP", default="")
    ssh_port: int = 0
    vm_user_name: str = ""
    bastion_vm_id: str = ""
    host_key: str = ""


class Mci(Struct, frozen=True, rename="camel"):
    """The fields of an MCI that commands show."""

    id: str
    status: str = ""
    status_count: dict[str, int] = {}
    target_action: str = NONE
    target_status: str = NONE
    label: dict[str, str] = {}
    system_message: list[str] = []
    vm: list[Vm] = []


class PassedOverVm(Struct, frozen=True):
    """A VM that an action has skipped, with the reason."""

    vm: str
    code: str = ""
    reason: str = ""


class MciReply(Struct, frozen=True):
    """The reply to a request: its operation, skipped VMs, removed objects, and machines that may be left."""

    message: str = ""
    operation: str | None = None
    skipped: list[PassedOverVm] | None = None
    output: list[str] = []
    remains: list[str] = []
    left: list[PossibleOrphan] = []
    new_key_pair: NewKeyPair | None = field(name="newKeyPair", default=None)


class GroupReview(Struct, frozen=True, rename="camel"):
    """The review of a subgroup."""

    vm_name: str = ""
    sub_group_size: Any = ""
    status: str = ""
    message: str = ""
    can_create: bool = False
    connection_name: str = ""
    estimated_cost: str = ""
    warnings: list[str] = []
    errors: list[str] = []


class Review(Struct, frozen=True, rename="camel"):
    """The review of an MCI."""

    overall_status: str = ""
    overall_message: str = ""
    creation_viable: bool = False
    estimated_cost: str = ""
    mci_name: str = ""
    total_vm_count: int = 0
    vm_reviews: list[GroupReview] = []
    recommendations: list[str] = []


class Connection(Struct, frozen=True):
    """A connection to a region of a provider."""

    name: str
    provider: str
    region: str
    zone: str = ""
    driver: str = "simulated"
    credential: str = ""
    options: dict[str, str] = {}
    built_in: bool = False
    namespaces: list[str] | None = None


class NamespaceEntry(Struct, frozen=True):
    """A namespace."""

    name: str
    description: str = ""


class OrphanListing(Struct, frozen=True):
    """The orphans, and the connections that could not be listed; `terminated` and `left` are set by a termination."""

    orphans: list[OrphanMachine] = []
    trouble: dict[str, str] = {}
    terminated: list[str] = []
    left: dict[str, str] = {}  # why an orphan could not be terminated, by its key


class UnmarkedListing(Struct, frozen=True):
    """The machines at a connection that can be adopted, and why the listing is not complete."""

    machines: list[UnmarkedMachine] = []
    trouble: str = ""


def ask(
    session: "Session",
    answer: type[T],
    method: str,
    *parts: str | NamedPart,
    params: Mapping[str, str | None] | None = None,
    body: object = None,
) -> T:
    """Call the Tumblebug API in the session's namespace."""
    path = url_path("ns", ("namespace", session.ns), *parts)
    return session.client.http.call(answer, method, path, params=params or {}, body=body, base=WIRE)


def status_of(session: "Session", mci: str, *, fresh: bool = False) -> Mci:
    """Return an MCI with the states of its VMs; with `fresh`, the states that the providers show now."""
    params = {"option": "status", "fresh": "true" if fresh else None}
    return ask(session, dict[str, Mci], "GET", "mci", ("MCI", mci), params=params)["status"]


def statuses(session: "Session") -> list[Mci]:
    """Return all MCIs, without their VMs."""
    return ask(session, dict[str, list[Mci]], "GET", "mci", params={"option": "status", "vm": "none"})["mci"]
