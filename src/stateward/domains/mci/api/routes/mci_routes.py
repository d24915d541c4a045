"""Routes of MCIs: create, read, delete."""

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from litestar import Response, delete, get, post
from msgspec.structs import replace

from stateward.domains.mci.api.context import AnyResponse, TumblebugRequest, adds_object_state, mci_in_path
from stateward.domains.mci.api.lenient_json import parse_flag
from stateward.domains.mci.api.mci_bodies import A_DYNAMIC_MCI, AN_MCI, parse_mci, parse_recipient
from stateward.domains.mci.api.operation_replies import (
    OperationReply,
    operation_id,
    wait_for_end,
    with_possible_orphans,
)
from stateward.domains.mci.api.schemas import Associated, MciInfo, matches_filter
from stateward.domains.mci.api.tumblebug_params import (
    ACT,
    READ,
    CreateOption,
    DeleteOption,
    FilterKey,
    FilterVal,
    Force,
    Fresh,
    Mci,
    MciOption,
    McisOption,
    Ns,
    StatusVms,
    Wait,
    check_choice,
)
from stateward.domains.mci.api.views import Views, access_of, associated_of
from stateward.domains.mci.errors import NotDone
from stateward.domains.mci.model import vm_of
from stateward.domains.mci.provider.encrypted_keys import encrypt_for
from stateward.domains.mci.provider.key_pairs import KeyPair, with_pair
from stateward.domains.mci.shared_schemas import NewKeyPair, PossibleOrphan
from stateward.errors import BadInput, StatewardError
from stateward.naming import new_id
from stateward.plugin.route_options import can_dry_run, reads
from stateward.store.records import Object

DELETE_WAIT_S = 120.0
"""How long a delete waits for the termination of VMs."""


def views(request: TumblebugRequest) -> Views:
    """Return the views for one response."""
    return Views(request.service, request.catalogue, request.context.live_status)


# --- create ----------------------------------------------------------------------------------------------------------


@post("/ns/{ns:str}/mci", opt=ACT | can_dry_run() | reads(AN_MCI), status_code=200)
async def create_mci(request: TumblebugRequest, ns: Ns, option: CreateOption = None, wait: Wait = None) -> MciInfo:
    """Create an MCI from existing resources."""
    return await _create(request, ns, option, wait, dynamic=False)


@post("/ns/{ns:str}/mciDynamic", opt=ACT | can_dry_run() | reads(A_DYNAMIC_MCI), status_code=200)
async def create_mci_dynamic(
    request: TumblebugRequest, ns: Ns, option: CreateOption = None, wait: Wait = None
) -> MciInfo:
    """Create an MCI and the resources that it needs."""
    return await _create(request, ns, option, wait, dynamic=True)


async def _create(
    request: TumblebugRequest, ns: str, option: str | None, wait: float | None, *, dynamic: bool
) -> MciInfo:
    hold = check_choice("option", option, "hold", "register", "create") == "hold"
    body = await request.fields()
    recipient = parse_recipient(body)
    wanted, pair = with_pair(parse_mci(body, new_id(), dynamic=dynamic, hold=hold))
    accepted = await request.service.create(ns, wanted, request.caller)
    made = await wait_and_show(request, ns, wanted.name, operation_id(accepted), wait)
    return replace(made, new_key_pair=pair_view(pair, recipient))


def pair_view(pair: KeyPair | None, recipient: RSAPublicKey | None) -> NewKeyPair | None:
    """Return the view of a new key pair, for the response to the request that created it."""
    if pair is None:
        return None
    if recipient is None:
        return NewKeyPair(pair.public, pair.private)
    return NewKeyPair(pair.public, encrypted_private_key=encrypt_for(recipient, pair.private))


async def wait_and_show(
    request: TumblebugRequest, ns: str, mci: str, op: str | None, wait: float | None, new: Sequence[str] = ()
) -> MciInfo:
    """Return an MCI after an accepted request, after its end if the caller waits."""
    request.link_operation(ns, op)
    await wait_for_end(request.service.engine, ns, op, wait)
    return await views(request).mci(await request.service.mci(ns, mci), new=new, op=op)


# --- read ------------------------------------------------------------------------------------------------------------


@get("/ns/{ns:str}/mci", opt=READ)
async def list_mcis(
    request: TumblebugRequest, ns: Ns, option: McisOption = None, fresh: Fresh = None, vm: StatusVms = None
) -> AnyResponse:
    """Return the MCIs of a namespace, their statuses, or their ids."""
    await request.service.namespace(ns)
    mcis, view = await request.service.mcis(ns), views(request)
    match check_choice("option", option, "id", "status", "simple"):
        case "id":
            return Response({"output": [mci.id for mci in mcis]})
        case "status":
            return Response({"mci": [await _status(view, mci, fresh, vm) for mci in mcis]})
        case _:
            return Response({"mci": [await view.mci(mci) for mci in mcis]})


@get("/ns/{ns:str}/mci/{mci:str}", opt=READ)
@adds_object_state(mci_in_path)
async def get_mci(
    request: TumblebugRequest,
    ns: Ns,
    mci: Mci,
    option: MciOption = None,
    fresh: Fresh = None,
    vm: StatusVms = None,
    filter_key: FilterKey = None,
    filter_val: FilterVal = None,
) -> AnyResponse:
    """Return an MCI, its status, the ids of its VMs, or their access data."""
    record, view = await request.service.mci(ns, mci), views(request)
    match check_choice("option", option, "id", "status", "accessinfo", "simple"):
        case "id":
            return Response({"output": await _ids(view, record, filter_key, filter_val)})
        case "status":
            return Response({"status": await _status(view, record, fresh, vm)})
        case "accessinfo":
            return Response(await access_of(view, record))
        case _:
            return Response(await view.mci(record))


@get("/ns/{ns:str}/mci/{mci:str}/associatedResources", opt=READ)
async def get_associated(request: TumblebugRequest, ns: Ns, mci: Mci) -> Associated:
    """Return the names of all objects that an MCI is associated with."""
    return await associated_of(views(request), await request.service.mci(ns, mci))


async def _status(view: Views, mci: Object, fresh: str | None, vm: str | None) -> object:
    if check_choice("vm", vm, "none", "all") == "none":
        return await view.status_without_vms(mci)
    return await view.status(mci, fresh=parse_flag("fresh", fresh))


async def _ids(view: Views, mci: Object, key: str | None, value: str | None) -> list[str]:
    vms = await view.vms(mci)
    if not key:
        return [vm_of(vm).name for vm in vms]
    return [info.id for info in await view.vm_infos(mci, vms) if matches_filter(info, key, value or "")]


# --- delete ----------------------------------------------------------------------------------------------------------


@delete("/ns/{ns:str}/mci/{mci:str}", opt=ACT, status_code=200)
@adds_object_state(mci_in_path)
async def delete_mci(
    request: TumblebugRequest, ns: Ns, mci: Mci, option: DeleteOption = None, force: Force = None, wait: Wait = None
) -> AnyResponse:
    """Delete an MCI; with `terminate`, terminate its VMs first and wait for that, up to a limit.

    With `force`, records are removed in any state; the response names the machines that may be left.
    """
    word = delete_option(option, force)
    record = await request.service.mci(ns, mci)
    vms = await views(request).vms(record)
    op, left = await _delete(request, record, word)
    if not await wait_until_deleted(request, record, op, wait):
        return Response(OperationReply("Terminating and deleting the MCI", op, "running"), status_code=202)
    return Response(with_possible_orphans({"output": _done(record, vms)}, left))


@delete("/ns/{ns:str}/mci", opt=ACT, status_code=200)
async def delete_mcis(
    request: TumblebugRequest, ns: Ns, option: DeleteOption = None, force: Force = None, wait: Wait = None
) -> AnyResponse:
    """Delete all MCIs of a namespace; the error names those that could not be deleted."""
    word = delete_option(option, force)
    await request.service.namespace(ns)
    begun: list[tuple[Object, str | None]] = []
    failed: dict[str, StatewardError] = {}
    left: list[PossibleOrphan] = []
    for mci in await request.service.mcis(ns):
        try:
            op, remains = await _delete(request, mci, word)
            begun.append((mci, op))
            left += remains
        except StatewardError as error:  # whatever it is: the answer names the machines that the others may leave
            failed[mci.id] = error
    unfinished: list[str | None] = []
    for mci, op in begun:
        try:
            unfinished += [] if await wait_until_deleted(request, mci, op, wait) else [op]
        except NotDone as error:
            failed[mci.id] = error
    if failed:
        problems = [
            *map(str, failed.values()),
            *(f"{orphan.key} may be left at {orphan.connection}" for orphan in left),
        ]
        raise NotDone(f"{word or 'delete'} of {', '.join(failed)}", "; ".join(problems))
    if unfinished:
        return Response(OperationReply("Terminating and deleting all MCIs", unfinished[0], "running"), status_code=202)
    return Response(with_possible_orphans({"message": "All MCIs have been deleted"}, left))


def delete_option(option: str | None, force: str | None) -> str:
    """Return how a delete treats running VMs; `force=true` is the same as `option=force`."""
    word = check_choice("option", option, "terminate", "force")
    if parse_flag("force", force) and word == "terminate":
        raise BadInput("force", force, "left out with option=terminate: force removes records only")
    return "force" if parse_flag("force", force) else word


async def _delete(request: TumblebugRequest, mci: Object, option: str) -> tuple[str | None, list[PossibleOrphan]]:
    """Delete an MCI; returns the operation, if there is one, and the machines that may be left."""
    accepted, left = await request.service.delete(mci.ns, mci.id, option, request.caller)
    op = None if accepted.operation is None else accepted.operation.id
    request.link_operation(mci.ns, op)
    return op, left


async def wait_until_deleted(request: TumblebugRequest, record: Object, op: str | None, wait: float | None) -> bool:
    """Wait for a delete; tells whether the object is gone, and raises if the delete failed."""
    if op is None:
        return True
    engine = request.service.engine
    over = await wait_for_end(engine, record.ns, op, DELETE_WAIT_S if wait is None else wait)
    if over is None:
        return False
    left = await engine.store.reader.object(record.key)
    if left is not None and not left.removed and left.created == record.created:  # not another one of the same name
        raise NotDone(f"delete of {record.id}", over.error or f"it is {left.state}, and still there")
    return True


def _done(mci: Object, vms: Sequence[Object]) -> list[str]:
    specs = [vm_of(vm) for vm in vms]
    groups = dict.fromkeys(spec.group for spec in specs)
    return [
        *(f"[Done] VM: {spec.name}" for spec in specs),
        *(f"[Done] SubGroup: {name}" for name in groups),
        f"[Done] MCI: {mci.id}",
    ]


ROUTES = (
    create_mci, create_mci_dynamic, list_mcis, get_mci, get_associated, delete_mci, delete_mcis,
)  # fmt: skip
