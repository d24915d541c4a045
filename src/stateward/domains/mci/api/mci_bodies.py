"""Parsers of request bodies: MCIs, subgroups and scaling."""

from collections.abc import Collection, Sequence
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.mci.address_ranges import check_address_range
from stateward.domains.mci.api.lenient_json import Fields, parse_flag
from stateward.domains.mci.api.tumblebug_params import (
    check_choice,
    check_id,
    check_name,
    check_reference,
    normalize_id,
)
from stateward.domains.mci.guards.spec_validation import MAX_VMS, check_user
from stateward.domains.mci.model import EVERYBODY, MciSpec, Policy, PostCommand, SubGroup, VmChoice
from stateward.domains.mci.provider.encrypted_keys import read_recipient
from stateward.domains.mci.provider.key_pairs import check_public_key, needs_key
from stateward.errors import BadInput

MAX_DISK_GIB = 1_000_000
A_DYNAMIC_GROUP = {
    "name": "web",
    "subGroupSize": "2",
    "specId": "aws+ap-northeast-2+t3.micro",
    "imageId": "ubuntu22.04",
}
A_GROUP = A_DYNAMIC_GROUP | {"vNetId": "net", "subnetId": "front", "securityGroupIds": ["web"], "sshKeyId": "key"}
A_DYNAMIC_MCI = {"name": "shop", "subGroups": [A_DYNAMIC_GROUP], "policyOnPartialFailure": "continue"}
AN_MCI = {"name": "shop", "subGroups": [A_GROUP]}
A_CHANGE = {"numVMsToAdd": "1"}
"""Examples of request bodies, for the API description."""

OWN_FIELDS = ("accessFrom", "publicKey", "encryptFor")
"""The fields of MCIs that the original does not have."""

MAX_PHASES = 50
MAX_COMMAND_MINUTES = 7 * 24 * 60.0
POLICIES: dict[str, Policy] = {"": "continue", "continue": "continue", "rollback": "rollback", "refine": "refine"}


class ScaleRequest(Struct, frozen=True):
    """The change of a subgroup: by a number of VMs, or to a size."""

    how: Literal["by", "to"]
    count: int


def parse_mci(body: Fields, uid: str, *, dynamic: bool, hold: bool = False, least: int = 0) -> MciSpec:
    """Parse an MCI; `least` is the smallest allowed size of a subgroup."""
    body.refuse_misspelt(*OWN_FIELDS)
    groups = with_public_key(body, _groups(body.objects("subGroups", "vm"), dynamic=dynamic, least=least))
    return MciSpec(
        name=check_name("name", body.text("name").strip()),
        uid=uid,
        groups=groups,
        dynamic=dynamic,
        hold=hold,
        policy=POLICIES[check_choice("policyOnPartialFailure", body.text("policyOnPartialFailure").strip(), *POLICIES)],
        label=body.labels("label"),
        system_label=body.text("systemLabel"),
        description=body.text("description"),
        install_mon_agent=body.text("installMonAgent", default="no") or "no",
        placement=body.text("placementAlgo"),
        post_command=_post_command(body.object("postCommand")),
        post_phases=parse_phases(body, [group.name for group in groups]),
        access_from=parse_access(body),
    )


def parse_access(body: Fields) -> tuple[str, ...] | None:
    """Parse who may connect to the VMs: ranges of addresses for SSH, `*` for every port and everybody.

    None if the request does not say: Tumblebug's clients do not know the field.
    """
    if body.raw("accessFrom") is None:
        return None
    given = body.texts("accessFrom")
    if EVERYBODY in given:
        return (EVERYBODY,)
    field, everybody = body.field("accessFrom"), f", or {EVERYBODY!r} for every port and everybody"
    ranges = {check_address_range(f"{field}[{number}]", entry, everybody) for number, entry in enumerate(given)}
    return tuple(sorted(ranges))


def with_public_key(body: Fields, groups: tuple[SubGroup, ...]) -> tuple[SubGroup, ...]:
    """Parse the caller's public key; it is for the subgroups that name no key."""
    public = body.text("publicKey").strip()
    if not public:
        return groups
    check_public_key(body.field("publicKey"), public)
    return tuple(replace(group, public_key=public) if needs_key(group) else group for group in groups)


def parse_recipient(body: Fields) -> RSAPublicKey | None:
    """Parse the public key that a new private key is encrypted for, if there is one."""
    text = body.text("encryptFor").strip()
    return read_recipient(body.field("encryptFor"), text) if text else None


def _groups(bodies: Sequence[Fields], *, dynamic: bool, least: int) -> tuple[SubGroup, ...]:
    groups = tuple(
        parse_subgroup(body, f"g{number}", dynamic=dynamic, least=least) for number, body in enumerate(bodies, 1)
    )
    if not groups:
        raise BadInput("subGroups", [], "a list of at least one subgroup")
    names = [group.name for group in groups]
    if len(set(names)) < len(names):
        raise BadInput("subGroups", names, "a list of subgroups with different names")
    if sum(group.size for group in groups) > MAX_VMS:
        raise BadInput("subGroups", names, f"a list of subgroups with at most {MAX_VMS} VMs together")
    return groups


def parse_subgroup(body: Fields, otherwise: str = "g1", *, dynamic: bool, least: int = 0) -> SubGroup:
    """Parse a subgroup; `otherwise` is the default name.

    A size of 0 stands for one VM: Tumblebug clients send it for a single VM.
    """
    body.refuse_misspelt(*OWN_FIELDS)
    if body.raw("accessFrom") is not None:
        raise BadInput(body.field("accessFrom"), None, "left out: it is a field of the whole MCI")
    group = SubGroup(
        name=check_id(body.field("name"), body.text("name") or otherwise),
        size=body.number("subGroupSize", "vmGroupSize", default=1, low=least, high=MAX_VMS) or 1,
        spec=_required(body, "specId", "commonSpec"),
        image=_required(body, "imageId", "commonImage"),
        connection=check_reference(body.field("connectionName"), body.text("connectionName")),
        key=check_reference(body.field("sshKeyId"), body.text("sshKeyId").strip()),
        user=check_user(body.field("vmUserName"), body.text("vmUserName", "vmUserAccount").strip()),
        disk_type=_unless_default(body.text("rootDiskType")),
        disk_gib=_disk(body),
        zone=check_reference(body.field("zone"), body.text("zone")),
        label=body.labels("label"),
        description=body.text("description"),
    )
    return group if dynamic else _with_existing_resources(body, group)


def _required(body: Fields, *names: str) -> str:
    return check_reference(body.field(names[0]), body.text(*names).strip(), needed=True)


def _with_existing_resources(body: Fields, group: SubGroup) -> SubGroup:
    """Parse the existing resources of a static subgroup; the subnet `null` stands for the first one."""
    subnet = body.text("subnetId")
    groups = tuple(check_reference(body.field("securityGroupIds"), id_) for id_ in body.texts("securityGroupIds"))
    return replace(
        group,
        network=_required(body, "vNetId"),
        subnet="" if subnet.lower() == "null" else check_reference(body.field("subnetId"), subnet),
        groups=groups,
        key=_required(body, "sshKeyId"),
    )


def _disk(body: Fields) -> int | None:
    if _unless_default(body.text("rootDiskSize")) == "":
        return None
    return body.number("rootDiskSize", default=0, low=0, high=MAX_DISK_GIB) or None


def _unless_default(text: str) -> str:
    return "" if text.strip().lower() == "default" else text.strip()


def _post_command(body: Fields | None) -> PostCommand | None:
    if body is None or not body.texts("command", "commands"):
        return None
    minutes = body.real("timeoutMinutes", default=30.0, low=0.0, high=MAX_COMMAND_MINUTES) or 30.0
    user = check_user(body.field("userName"), body.text("userName").strip())
    return PostCommand(user, body.texts("command", "commands"), minutes)


def parse_phases(body: Fields, groups: Collection[str]) -> tuple[PostCommand, ...]:
    """Parse the phases of post-commands; each is for all VMs, for those of a subgroup or with labels, or for one."""
    bodies = body.objects("postCommands")
    if len(bodies) > MAX_PHASES:
        raise BadInput(body.field("postCommands"), len(bodies), f"a list of at most {MAX_PHASES} phases")
    return tuple(_phase(phase, groups) for phase in bodies)


def _phase(body: Fields, groups: Collection[str]) -> PostCommand:
    command = _post_command(body)
    if command is None:
        raise BadInput(body.field("command"), None, "a list of at least one command")
    group, vm = (normalize_id(body.text(field)) for field in ("subGroupId", "vmId"))
    labels = parse_label_pairs(body.field("labelSelector"), body.text("labelSelector"))
    if sum(map(bool, (group, vm, labels))) > 1:
        raise BadInput(body.field("labelSelector"), None, "left out where the phase is for a subgroup or a VM")
    if group and group not in groups:
        raise BadInput(body.field("subGroupId"), group, f"one of {', '.join(groups)}")
    go_on = parse_flag(body.field("continueOnError"), body.text("continueOnError"))
    return replace(command, choice=VmChoice(vm, group, labels), go_on=go_on)


def parse_label_pairs(field: str, text: str) -> dict[str, str]:
    """Parse labels with their values: `role=web,tier=front`."""
    pairs = [pair.strip().partition("=") for pair in text.split(",") if pair.strip()]
    for name, sign, value in pairs:
        if not name or not sign or name.endswith("!") or value.startswith("="):
            raise BadInput(field, text, "names with values: role=web,tier=front")
    return {name.strip(): value.strip() for name, _, value in pairs}


SCALE_FIELDS = {"numVMsToAdd": 1, "numVMsToRemove": -1, "size": 0}
"""The fields that scale a subgroup, with their sign."""


def parse_scale(body: Fields) -> ScaleRequest:
    """Parse a scaling: add, remove, or set the size."""
    given = [name for name in SCALE_FIELDS if body.raw(name) not in (None, "")]
    if len(given) != 1:
        raise BadInput("numVMsToAdd", given, "exactly one of numVMsToAdd, numVMsToRemove and size")
    name = given[0]
    low = 0 if name == "size" else 1
    count = body.number(name, default=0, low=low, high=MAX_VMS)
    return ScaleRequest("to", count) if name == "size" else ScaleRequest("by", SCALE_FIELDS[name] * count)
