"""Routes that adopt machines which others have created at providers, and that deregister VMs."""

import re
import time
from collections.abc import Sequence
from typing import Any

from litestar import Response, delete, get, post
from msgspec import Struct
from msgspec.structs import replace

from stateward.access import Right
from stateward.domains.mci.adoption import AdoptionRequest, adopt_machines, deregister_vms, list_unmarked
from stateward.domains.mci.api.context import AnyResponse, TumblebugRequest, adds_object_state, vm_in_path
from stateward.domains.mci.api.lenient_json import Fields, parse_flag
from stateward.domains.mci.api.operation_replies import OperationReply, operation_id, wait_for_end
from stateward.domains.mci.api.routes.mci_routes import wait_and_show
from stateward.domains.mci.api.schemas import MciInfo
from stateward.domains.mci.api.tumblebug_params import (
    ACT,
    AtConnection,
    Mci,
    MciFlag,
    Ns,
    RegisteredTypes,
    Vm,
    Wait,
    check_choice,
    check_id,
    check_name,
    check_reference,
    normalize_id,
)
from stateward.domains.mci.errors import NamespaceForbidden, NotDone
from stateward.domains.mci.guards.connection_grants import adopting_namespaces, is_granted
from stateward.domains.mci.guards.spec_validation import check_user
from stateward.domains.mci.model import CloudConnection, MachineToAdopt, mci_seen, vm_of
from stateward.domains.mci.shared_schemas import UnmarkedMachine
from stateward.drivers import Observation
from stateward.errors import BadInput, StatewardError
from stateward.plugin.route_options import grant_of, needs, reads

AN_ADOPTION = {
    "name": "shop",
    "subGroups": [{"name": "db", "connectionName": "aws-ap-northeast-2", "cspResourceId": "i-014fa6ede6ada0b2c"}],
}
A_REGISTRATION = {"nsId": "default", "connectionName": "aws-ap-northeast-2", "mciNamePrefix": "csp"}
REGISTER_WAIT_S = 60.0
"""How long a registration of all machines waits for its end."""


# --- machines that the request names ---------------------------------------------------------------------------------


@post("/ns/{ns:str}/registerCspVm", opt=ACT | reads(AN_ADOPTION), status_code=200)
async def register_vms(request: TumblebugRequest, ns: Ns, wait: Wait = None) -> MciInfo:
    """Adopt machines that others have created: each gets a VM of an MCI, which is created if it does not exist."""
    body = await request.fields()
    groups = body.objects("subGroups", "vm")
    if not groups:
        raise BadInput("subGroups", [], "a list of at least one subgroup with a cspResourceId")
    machines = tuple(_parse_machine(group, f"g{number}") for number, group in enumerate(groups, 1))
    name = check_name("name", body.text("name").strip())
    wanted = AdoptionRequest(name, machines, body.labels("label"), body.text("description"))
    op, new = await adopt_machines(request.service, ns, wanted, request.caller, grant_of(request).opens)
    made = await wait_and_show(request, ns, wanted.mci, op, wait)
    ids = {machine.native_id for machine in new}
    listed = [vm for vm in await request.service.vms(ns, wanted.mci) if vm_of(vm).adopted in ids]
    return replace(made, new_vm_list=[vm_of(vm).name for vm in listed])


def _parse_machine(body: Fields, otherwise: str) -> MachineToAdopt:
    user = body.text("vmUserName", "vmUserAccount").strip()
    return MachineToAdopt(
        connection=check_reference(body.field("connectionName"), body.text("connectionName").strip(), needed=True),
        native_id=check_reference(body.field("cspResourceId"), body.text("cspResourceId").strip(), needed=True),
        group=check_id(body.field("name"), body.text("name") or otherwise),
        user=check_user(body.field("vmUserName"), user),
        label=body.labels("label"),
        description=body.text("description"),
    )


# --- all machines of connections -------------------------------------------------------------------------------------


@post(["/registerCspResources", "/registerCspResourcesAll"], opt=ACT | reads(A_REGISTRATION), status_code=200)
async def register_all(
    request: TumblebugRequest, option: RegisteredTypes = None, mci_flag: MciFlag = None, wait: Wait = None
) -> dict[str, Any]:
    """Adopt all machines of connections that no server of ours has; networks, groups and keys stay as they are."""
    began = time.monotonic()
    check_choice("option", option, "vm", "node")
    body = await request.fields()
    ns = check_reference("nsId", body.text("nsId").strip(), needed=True)
    if not grant_of(request).opens(ns):
        raise NamespaceForbidden(ns)
    await request.service.namespace(ns)
    if body.raw("mciName") is not None:
        raise BadInput("mciName", None, "left out: mciNamePrefix is the name of the MCI, or the beginning of its names")
    flag = (mci_flag or "y").strip()
    prefix = check_name("mciNamePrefix", body.text("mciNamePrefix", "infraNamePrefix").strip() or "csp")
    # the named connection, or all where the namespace may adopt
    name = body.text("connectionName").strip()
    if name:
        places = [await request.require_connection("connectionName", name, ns)]
    else:
        wanted = {field: body.text(word).strip() for field, word in FILTERS.items()}
        granted = [connection for connection in await request.catalogue.connections() if is_granted(connection, ns)]
        places = [
            connection
            for connection in granted
            if adopting_namespaces(connection.options) & {ns, "*"}
            and all(text in ("", getattr(connection, field)) for field, text in wanted.items())
        ]
    results = [
        await _register(request, ns, place, prefix, single=parse_flag("mciFlag", flag), wait=wait) for place in places
    ]
    counts = [result["registerationOverview"] for result in results]
    return {
        "registeredConnection": len(places),
        "availableConnection": sum(not result["systemMessage"] for result in results),
        "elapsedTime": round(time.monotonic() - began),
        "registerationOverview": {word: sum(count[word] for count in counts) for word in _overview(0, 0)},
        "registerationResult": results,
    }


FILTERS = {"provider": "provider", "region": "region", "zone": "zone"}


def _overview(adopted: int, failed: int) -> dict[str, int]:
    nothing = dict.fromkeys(("vNet", "securityGroup", "sshKey", "dataDisk", "customImage"), 0)
    return {**nothing, "vm": adopted, "node": adopted, "failed": failed}


async def _register(
    request: TumblebugRequest, ns: str, place: CloudConnection, prefix: str, *, single: bool, wait: float | None
) -> dict[str, Any]:
    """Adopt all machines of one connection; a failure is in the result and does not stop the others."""
    began, problem = time.monotonic(), ""
    outputs: list[str] = []
    adopted = failed = 0
    try:
        listing = await list_unmarked(request.service, ns, place)
        problem = "" if listing.complete else listing.problem or "the listing was not complete"
        for adoption in _requests(place, prefix, listing.machines, single=single):
            op, _ = await adopt_machines(request.service, ns, adoption, request.caller, grant_of(request).opens)
            request.link_operation(ns, op)
            await wait_for_end(request.service.engine, ns, op, REGISTER_WAIT_S if wait is None else wait)
            wanted = {machine.native_id for machine in adoption.machines}
            done = [vm_of(vm).name for vm in await request.service.vms(ns, adoption.mci) if vm_of(vm).adopted in wanted]
            errors = [f"failed: {text}" for text in mci_seen(await request.service.mci(ns, adoption.mci)).errors]
            adopted, failed = adopted + len(done), failed + len(adoption.machines) - len(done)
            outputs += [f"vm: {name}" for name in done] + errors
    except StatewardError as error:
        problem = str(error)
    return {
        "connectionName": place.name,
        "systemMessage": problem,
        "elapsedTime": round(time.monotonic() - began),
        "registerationOverview": _overview(adopted, failed),
        "registerationOutputs": {"output": outputs},
    }


def _requests(
    place: CloudConnection, prefix: str, machines: Sequence[Observation], *, single: bool
) -> list[AdoptionRequest]:
    """Return the adoptions of all machines of a connection: into one MCI, or into one for each."""
    named = {_name(place.name, machine.native_id): machine.native_id for machine in machines}
    wanted = [MachineToAdopt(place.name, native, name) for name, native in named.items()]
    if not wanted or single:
        return [AdoptionRequest(prefix, tuple(wanted))] if wanted else []
    return [AdoptionRequest(_name(prefix, machine.native_id), (machine,)) for machine in wanted]


def _name(first: str, native: str) -> str:
    """Return a valid name from a connection or a prefix, and the last part of the provider's id of a machine."""
    last = native.rstrip("/").rpartition("/")[2]
    return re.sub("[^a-z0-9+-]+", "-", f"{first}-{last}".lower())[:100]


# --- deregistration --------------------------------------------------------------------------------------------------


@delete("/ns/{ns:str}/deregisterResource/mci/{mci:str}/vm/{vm:str}", opt=ACT, status_code=200)
@adds_object_state(vm_in_path)
async def deregister_vm(request: TumblebugRequest, ns: Ns, mci: Mci, vm: Vm, wait: Wait = None) -> AnyResponse:
    """Remove the record of a VM; its machine stays at the provider as it is, without our key."""
    op = operation_id(await deregister_vms(request.service, ns, mci, [normalize_id(vm)], request.caller))
    request.link_operation(ns, op)
    ended = await wait_for_end(request.service.engine, ns, op, REGISTER_WAIT_S if wait is None else wait)
    if ended is None:
        return Response(OperationReply("Deregistering the VM", op, "running"), status_code=202)
    if ended.error:
        raise NotDone(f"deregistration of {mci}/{vm}", ended.error)
    return Response(OperationReply("Deregistered the VM; its machine stays at the provider", op, str(ended.status)))


ROUTES = (register_vms, register_all, deregister_vm)


# --- the native route ------------------------------------------------------------------------------------------------


class UnmarkedMachines(Struct, frozen=True):
    """The machines that can be adopted, and why the listing is not complete."""

    machines: list[UnmarkedMachine]
    trouble: str


@get("/ns/{ns:str}/unmarked", opt=needs(Right.ACT))
async def list_unmarked_machines(request: TumblebugRequest, ns: Ns, connection: AtConnection) -> UnmarkedMachines:
    """Return the machines at a connection that a namespace may adopt."""
    place = await request.require_connection("connection", connection, ns)
    listing = await list_unmarked(request.service, ns, place)
    shown = [
        UnmarkedMachine(
            place.name, machine.native_id, machine.name, str(machine.state), machine.public_ip, machine.private_ip
        )
        for machine in listing.machines
    ]
    trouble = "" if listing.complete else listing.problem or "the listing was not complete"
    return UnmarkedMachines(shown, trouble)


NATIVE_ROUTES = (list_unmarked_machines,)
