"""Scaling: of which subgroup, and by how many. The record of the MCI changes with it, whoever asks in whatever form."""

import msgspec
from msgspec.structs import replace

from stateward.domains.mci.forms import read
from stateward.domains.mci.model import MciSpec, Scale, mci_of, text
from stateward.domains.mci.wishes import MOST_VMS, check_groups
from stateward.engine import Request
from stateward.errors import BadInput
from stateward.store.records import Object

SIGNS = {"scale out": 1, "scale in": -1}


def scaled(request: Request, found: Object) -> Request:
    """Return the request to scale an MCI, with the record that the MCI has then; one that does not say how is refused.

    A record that comes along may add a subgroup, and must be the one that follows from the arguments.
    """
    scale, was = _scale(request, found), mci_of(found)
    given: MciSpec | None = None if request.spec is None else read(found.kind, request.spec, found.state)
    want = _scaled(was, given, scale, SIGNS[request.action])
    if want is None:
        names = ", ".join(one.name for one in was.groups) or "none"
        allowed = f"a subgroup of {found.id!r}, which is {found.state} and has {names}"
        raise BadInput("args.group", scale.group, allowed, state=found.state)
    if given not in (None, want):
        allowed = f"{found.id!r} as it is, but for {scale.count} VMs of {scale.group!r}"
        raise BadInput("spec", request.spec, allowed, state=found.state)
    if len(want.groups) > len(was.groups):
        check_groups(want.groups[len(was.groups) :], found.state)
    return replace(request, spec=text(want))


def _scale(request: Request, found: Object) -> Scale:
    how = f"{{group, count}}, to {request.action} {found.id!r}, which is {found.state}"
    try:
        scale = msgspec.json.decode(request.args, type=Scale)
    except msgspec.ValidationError as error:
        raise BadInput("args", request.args, f"{how} ({error})", state=found.state) from error
    if not 1 <= scale.count <= MOST_VMS:
        raise BadInput("args.count", scale.count, f"from 1 to {MOST_VMS} in {how}", state=found.state)
    return scale


def _scaled(was: MciSpec, given: MciSpec | None, scale: Scale, sign: int) -> MciSpec | None:
    if any(one.name == scale.group for one in was.groups):
        sizes = {scale.group: sign * scale.count}
        grown = tuple(replace(one, size=max(0, one.size + sizes.get(one.name, 0))) for one in was.groups)
        return replace(was, groups=grown)
    new = [one for one in given.groups if one.name == scale.group] if given is not None and sign > 0 else []
    return replace(was, groups=(*was.groups, replace(new[0], size=scale.count))) if new else None
