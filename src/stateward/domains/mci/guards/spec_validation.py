"""Validation of specs, before anything is accepted.

The domain writes most specs itself, but the general API accepts any spec. A wrong spec must not fail later in a worker
or in each list that contains it. Names must identify a VM, and a request must not ask for more VMs than one transaction
can hold: each server that tried it would fail.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from stateward.domains.mci import model
from stateward.domains.mci.lifecycle import CONNECTION, IMAGE, MCI, SECURITY_GROUP, SETTING, SPEC, SSH_KEY, VM, VNET
from stateward.domains.mci.provider.key_pairs import check_public_key
from stateward.engine import Request
from stateward.engine.kind_types import require_known_fields
from stateward.engine.requests import EMPTY
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.store.records import Object, to_json
from stateward.validation_texts import bad_input

MADE_BY_COMMAND = "`stateward mci create -f FILE` creates an MCI with its VMs, and needs less"
PLACE = ("name", "uid", "connection", "provider", "region")
OF_VM = tuple(name for name in model.VmSpec.__struct_fields__ if name not in ("label", "description"))


class SpecForm(Struct, frozen=True):
    """The record type of a kind, the prefix of its object id, its name field, and its immutable fields."""

    record: type[Struct]
    before: str | None = None  # None: the id does not contain the name
    named: str = "name"
    fixed: tuple[str, ...] = PLACE


SPEC_FORMS = {
    #                         record       id prefix         the name   immutable
    MCI.kind:            SpecForm(model.MciSpec,     "",               "name",    ("name", "uid")),
    VM.kind:             SpecForm(model.VmSpec,      None,             "name",    OF_VM),
    VNET.kind:           SpecForm(model.NetworkSpec, "vNet",           "name",    PLACE),
    SECURITY_GROUP.kind: SpecForm(model.SecurityGroupSpec,   "securityGroup",  "name",    (*PLACE, "network")),
    SSH_KEY.kind:        SpecForm(model.KeySpec,     "sshKey",         "name",    PLACE),
    CONNECTION.kind:     SpecForm(model.CloudConnection,  "connection",     "name",    ("name",)),
    SPEC.kind:           SpecForm(model.SpecRecord,        "spec",           "id",      ("id",)),
    IMAGE.kind:          SpecForm(model.ImageRecord,       "image",          "id",      ("id",)),
    SETTING.kind:        SpecForm(model.TumblebugSetting,           "setting",        "name",    ("name",)),
}  # fmt: skip


async def guard_spec(_uow: UnitOfWork, request: Request, record: Object) -> None:
    """Refuse a spec of the wrong form."""
    check_spec(request, record)


def check_spec(request: Request, record: Object) -> None:
    """Refuse a spec of the wrong form; most requests have no spec."""
    if request.creates is not None:
        want = _decode_new_spec(record.kind, request.spec or EMPTY)
        form = SPEC_FORMS[record.kind]
        name = getattr(want, form.named)
        wanted = record.id if form.before is None else model.record_id(form.before, name) if form.before else name
        if record.id != wanted:
            raise BadInput("id", record.id, f"{wanted!r}, the id that follows from its spec")
    elif request.spec is not None:
        want = decode_spec(record.kind, request.spec, record.state)
        _check_fixed(SPEC_FORMS[record.kind], want, record)
    else:
        return
    if isinstance(want, model.VmSpec):
        check_user("spec.user", want.user)
    # The domain writes most specs itself, and such a spec has no other fields: of 400 subgroups, that is seen sooner.
    if request.parent is None and to_json(want) != request.spec:
        require_known_fields(msgspec.json.decode(request.spec or EMPTY), want, request, record.state)


def _decode_new_spec(kind: str, spec: str) -> Any:  # noqa: ANN401 - the record of the kind
    """Return the spec of a new object; people do not write the whole spec of an MCI, so the error names the command."""
    try:
        return decode_spec(kind, spec)
    except BadInput as error:
        if kind not in (MCI.kind, VM.kind):
            raise
        raise BadInput(error.field, error.value, f"{error.allowed}; {MADE_BY_COMMAND}") from error


def decode_spec(kind: str, spec: str, state: str | None = None) -> Any:  # noqa: ANN401 - the record of the kind
    """Return a spec as the record of its kind; an error names the field.

    `state` is the state of the object that gets the spec, if it exists.
    """
    try:
        return _decode(SPEC_FORMS[kind].record, spec)
    except msgspec.ValidationError as error:
        raise bad_input(error, SPEC_FORMS[kind].record, "spec", state=state) from error


@lru_cache(maxsize=4)
def _decode(record: type[Struct], spec: str) -> Struct:
    """Return a spec as a record; several guards read that of one request, which may have 400 subgroups."""
    return msgspec.json.decode(spec, type=record)


def _check_fixed(form: SpecForm, want: Any, record: Object) -> None:  # noqa: ANN401
    was = decode_spec(record.kind, record.spec)
    for name in form.fixed:
        before, after = getattr(was, name), getattr(want, name)
        if after != before:
            raise BadInput(f"spec.{name}", after, f"{before!r}: this field cannot be changed", state=record.state)


USER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z")
USER_NAME_RULE = (
    "the name of a user of the VM: 1 to 64 letters, digits, -, _ and ., of which the first is a letter or _"
)


def check_user(field: str, name: str, state: str | None = None) -> str:
    """Return the name of a user of a VM, which may be empty, or raise: programs get it as an argument."""
    if name and USER_NAME.match(name) is None:
        raise BadInput(field, name, USER_NAME_RULE, state=state)
    return name


def _check_phases(field: str, phases: Sequence[model.PostCommand], state: str | None) -> None:
    for number, phase in enumerate(phases):
        check_user(f"{field}[{number}].user", phase.user, state)


MAX_VMS = 10_000
"""Number of VMs that one request may ask for."""

MCI_NAME = re.compile(r"[A-Za-z][A-Za-z0-9+-]{0,99}\Z")
MCI_NAME_RULE = "1 to 100 letters, digits, - and +, of which the first is a letter"


def check_mci_spec(wanted: model.MciSpec) -> None:
    """Refuse an MCI that could not be created or controlled."""
    if MCI_NAME.match(wanted.name) is None:
        raise BadInput("spec.name", wanted.name, MCI_NAME_RULE)
    if wanted.post_command is not None:
        check_user("spec.post_command.user", wanted.post_command.user)
    _check_phases("spec.post_phases", wanted.post_phases, None)
    check_new_subgroups(wanted.groups)


def check_new_subgroups(groups: Sequence[model.SubGroup], state: str | None = None) -> None:
    """Refuse new subgroups that could not be created; `state` is the state of their MCI."""
    checked_keys: set[str] = set()  # most subgroups have the same one
    for number, group in enumerate(groups):
        if MCI_NAME.match(group.name) is None or group.name != group.name.lower():
            raise BadInput(f"spec.groups[{number}].name", group.name, f"{MCI_NAME_RULE}, in lower case", state=state)
        if group.public_key and group.public_key not in checked_keys:
            checked_keys.add(group.public_key)
            check_public_key(f"spec.groups[{number}].public_key", group.public_key)
        check_user(f"spec.groups[{number}].user", group.user, state)
        _check_phases(f"spec.groups[{number}].post_phases", group.post_phases, state)
        if group.size < 1:
            raise BadInput(f"spec.groups[{number}].size", group.size, "a number of at least 1", state=state)
    names = [group.name for group in groups]
    if not names or len(set(names)) < len(names):
        raise BadInput("spec.groups", names, "a list of subgroups with different names", state=state)
    if sum(group.size for group in groups) > MAX_VMS:
        raise BadInput("spec.groups", names, f"subgroups with at most {MAX_VMS} VMs together", state=state)
