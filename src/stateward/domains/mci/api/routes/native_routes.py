"""Native routes, for the command line and the console: connections, offers, orphans, reconcile, scaling."""

from litestar import delete, get, post
from msgspec import Struct
from msgspec.structs import replace

from stateward import naming
from stateward.access import Grant, Right
from stateward.domains.mci.api.connection_views import image_view, spec_view
from stateward.domains.mci.api.context import TumblebugRequest, adds_object_state, mci_in_path
from stateward.domains.mci.api.mci_bodies import A_CHANGE, SCALE_FIELDS
from stateward.domains.mci.api.operation_replies import OperationReply
from stateward.domains.mci.api.resource_bodies import CONNECTION_FIELDS, parse_connection, parse_namespaces
from stateward.domains.mci.api.routes.control_routes import control_one_vm, control_whole_mci
from stateward.domains.mci.api.routes.vm_routes import scale
from stateward.domains.mci.api.schemas import ImageView, MciInfo, SpecView
from stateward.domains.mci.api.tumblebug_params import (
    GOVERN_ALL,
    READ_ALL,
    Group,
    Mci,
    Name,
    Ns,
    OnlyConnection,
    Vm,
    Wait,
)
from stateward.domains.mci.control.orphan_machines import find_orphans, terminate_orphans
from stateward.domains.mci.model import CloudConnection
from stateward.domains.mci.provider.catalogue import BUILT_IN, known_images, known_specs
from stateward.domains.mci.shared_schemas import OrphanMachines, OrphanTermination
from stateward.errors import BadInput, UnknownName, UnknownValue
from stateward.plugin.route_options import grant_of, needs, reads

BASE = "/api/v1/mci"
A_CONNECTION = {
    "name": "here", "provider": "local", "region": "here", "driver": "process", "namespaces": ["default"],
}  # fmt: skip
A_GRANT = {"namespaces": ["default"]}
AN_ORPHAN = {"connection": "aws-ap-northeast-2", "key": "8f14e45fceea167a5a36dedd4bea2543"}
MAX_ORPHANS = 1000
"""Orphans that one request terminates."""


class ConnectionDetails(Struct, frozen=True, omit_defaults=True):
    """A connection; `built_in` ones exist on every server.

    Only global administrators see its credential, its options and its `namespaces`; `*` means all.
    """

    name: str
    provider: str
    region: str
    zone: str
    driver: str
    built_in: bool
    namespaces: list[str] | None = None
    credential: str | None = None
    options: dict[str, str] | None = None


class Offer(Struct, frozen=True):
    """The built-in specs and images of a connection."""

    specs: list[SpecView]
    images: list[ImageView]


def _out(connection: CloudConnection, grant: Grant) -> ConnectionDetails:
    built_in = BUILT_IN.get(connection.name) == replace(connection, namespaces=None)
    shown = ConnectionDetails(
        connection.name, connection.provider, connection.region, connection.zone, connection.driver, built_in
    )
    if not grant.governs_all:
        return shown
    return replace(
        shown,
        namespaces=list(connection.namespaces or ()),
        credential=connection.credential,
        options=connection.options,
    )


@get("/connections", opt=needs(Right.READ))
async def list_connections(request: TumblebugRequest) -> list[ConnectionDetails]:
    """Return the connections that the caller's namespaces may use."""
    return [_out(connection, grant_of(request)) for connection in await request.visible_connections()]


async def _namespaces(request: TumblebugRequest, pattern: str) -> tuple[str, ...]:
    body = await request.fields()
    body.require_known(*A_GRANT)
    return parse_namespaces(body, needed=True, pattern=pattern) or ()


@post("/connections", opt=GOVERN_ALL | reads(A_CONNECTION))
async def add_connection(request: TumblebugRequest) -> ConnectionDetails:
    """Add or change a connection; without `namespaces` it keeps its own, or gets the default of its driver."""
    body = await request.fields()
    body.require_known(*CONNECTION_FIELDS)
    wanted = parse_connection(body)
    try:
        return _out(await request.service.add_connection(wanted, request.caller), grant_of(request))
    except UnknownName as error:
        raise UnknownValue(error.what, error.what, error.name, error.known) from error


@delete("/connections/{name:str}", opt=GOVERN_ALL, status_code=200)
async def remove_connection(request: TumblebugRequest, name: Name) -> OperationReply:
    """Remove a connection; a built-in one comes back when it is added again."""
    await request.service.remove_connection(name, request.caller)
    return OperationReply(f"the connection {name} has been removed")


@post("/connections/{name:str}/grant", opt=GOVERN_ALL | reads(A_GRANT), status_code=200)
async def grant_connection(request: TumblebugRequest, name: Name) -> ConnectionDetails:
    """Let further namespaces create VMs and resources at a connection; `*` stands for all."""
    namespaces = await _namespaces(request, naming.NAME)
    return _out(await request.service.grant(name, namespaces, request.caller), grant_of(request))


@post("/connections/{name:str}/revoke", opt=GOVERN_ALL | reads(A_GRANT), status_code=200)
async def revoke_connection(request: TumblebugRequest, name: Name) -> ConnectionDetails:
    """Take the grant of namespaces away; their VMs can still be controlled and terminated."""
    namespaces = await _namespaces(request, naming.PATH_PART)  # former versions granted names that cannot be given now
    return _out(await request.service.revoke(name, namespaces, request.caller), grant_of(request))


@get("/connections/{name:str}/offer", opt=needs(Right.READ))
async def get_offer(request: TumblebugRequest, name: Name) -> Offer:
    """Return the built-in specs and images of a connection."""
    place = await request.visible_connection(name)
    specs = [spec_view(spec, place) for spec in known_specs(place)]
    return Offer(specs, [image_view(image, place) for image in known_images(place)])


@get("/orphans", opt=READ_ALL)
async def list_orphans(request: TumblebugRequest, connection: OnlyConnection = None) -> OrphanMachines:
    """Return the orphan machines, at one connection or at all."""
    domain, catalogue = request.context.domain, request.catalogue
    chosen = [await catalogue.connection_of_machines(connection)] if connection else await catalogue.connections()
    return await find_orphans(domain.clients, request.service.engine.store.reader, chosen)


@post("/orphans/terminate", opt=GOVERN_ALL | reads(AN_ORPHAN), status_code=202)
async def end_orphan(request: TumblebugRequest) -> OrphanTermination:
    """Terminate an orphan machine (`key`), or several at once (`keys`); `left` says why one is not terminated."""
    body = await request.fields()
    body.require_known(*AN_ORPHAN, "keys")
    place = await request.require_connection("connection", body.text("connection"))
    keys = tuple(dict.fromkeys(body.texts("keys")))
    if len(keys) > MAX_ORPHANS:
        raise BadInput("keys", f"{len(keys)} keys", f"at most {MAX_ORPHANS} keys")
    clients, reader = request.context.domain.clients, request.service.engine.store.reader
    errors = await terminate_orphans(clients, reader, place, keys or (body.text("key"),), request.caller.who)
    if errors and not keys:
        raise errors[body.text("key")]
    what = f"{len(keys) - len(errors)} of {len(keys)} machines are" if keys else f"{body.text('key')} is"
    return OrphanTermination(f"{what} being terminated", {key: str(error) for key, error in errors.items()})


@post("/ns/{ns:str}/mci/{mci:str}/reconcile", opt=needs(Right.ACT), status_code=202)
async def reconcile_mci(request: TumblebugRequest, ns: Ns, mci: Mci, wait: Wait = None) -> OperationReply:
    """Move the Failed and Undefined VMs of an MCI to their providers' states."""
    return await control_whole_mci(request, ns, mci, "reconcile", wait=wait)


@post("/ns/{ns:str}/mci/{mci:str}/vm/{vm:str}/reconcile", opt=needs(Right.ACT), status_code=202)
async def reconcile_vm(request: TumblebugRequest, ns: Ns, mci: Mci, vm: Vm, wait: Wait = None) -> OperationReply:
    """Move a Failed or Undefined VM to its provider's state."""
    return await control_one_vm(request, ns, mci, vm, "reconcile", wait=wait)


@post("/ns/{ns:str}/mci/{mci:str}/subgroup/{group:str}", opt=needs(Right.ACT) | reads(A_CHANGE), status_code=202)
@adds_object_state(mci_in_path)
async def scale_group(request: TumblebugRequest, ns: Ns, mci: Mci, group: Group, wait: Wait = None) -> MciInfo:
    """Scale a subgroup: `numVMsToAdd`, `numVMsToRemove` or `size`."""
    (await request.fields()).require_known(*SCALE_FIELDS)
    return await scale(request, ns, mci, group, wait)


ROUTES = (
    list_connections, add_connection, remove_connection, grant_connection, revoke_connection, get_offer,
    list_orphans, end_orphan, reconcile_mci, reconcile_vm, scale_group,
)  # fmt: skip
