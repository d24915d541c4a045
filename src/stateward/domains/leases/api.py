"""The routes: OpenStack Blazar's v1 API, below `/blazar/v1`, and for another namespace below `/ns/{ns}/blazar/v1`.

Errors have the wording that its clients expect; their status codes come from the server's table of problems.
"""

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from litestar import Request, Response, delete, get, patch, post, put
from litestar.datastructures import ResponseHeader
from litestar.di import NamedDependency, Provide
from litestar.exceptions import HTTPException
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import UNSET, Meta, UnsetType

from stateward.access import Right
from stateward.access.tokens import ANY
from stateward.domains.leases import schemas
from stateward.domains.leases.errors import BlazarBadInput, DeniedByPolicy
from stateward.domains.leases.host_service import HostService
from stateward.domains.leases.service import LeaseCaller, LeaseService, in_order_of_start
from stateward.errors import BadInput
from stateward.naming import IDEMPOTENCY_HEADER, NAME, NAME_MEANS, PATH_PART
from stateward.plugin import route_options
from stateward.plugin.owned_router import OwnedRouter
from stateward.validation_texts import GIVEN

ROOT, V1 = "/blazar", "/v1"
BASE = f"{ROOT}{V1}"
DEFAULT_NS = "default"
"""The namespace of a call that names none, with a token for several namespaces."""

SERVICE, API_VERSION = "reservation", "1.0"
VERSION = ResponseHeader(name="OpenStack-API-Version", value=f"{SERVICE} {API_VERSION}")
VARY = ResponseHeader(name="Vary", value="OpenStack-API-Version")
VERSION_FORMAT = re.compile(r"([1-9][0-9]*)\.(0|[1-9][0-9]*)")
MISSING_FIELD = f"must be {GIVEN}"


def to_blazar_error(answer: Response[Any], error: Exception) -> Response[bytes]:
    """Return an error with the fields that clients of Blazar read.

    The fields of the problem details (RFC 9457) stay, for our own clients.
    """
    problem = msgspec.json.decode(answer.content)
    status = HTTPStatus.FORBIDDEN if isinstance(error, DeniedByPolicy) else HTTPStatus(answer.status_code or 500)
    body = problem | {
        "title": status.phrase,
        "status": status.value,
        "error_code": status.value,
        "error_message": _error_message(error, problem.get("detail", status.phrase), problem.get("field", "")),
        "error_name": status.phrase,
    }
    return Response(
        msgspec.json.encode(body),
        status_code=status,
        media_type="application/json",
        headers={**answer.headers, VERSION.name: str(VERSION.value), VARY.name: str(VARY.value)},
    )


def _error_message(error: Exception, detail: str, field: str) -> str:
    """Return Blazar's sentence for an error, or the detail of the problem."""
    if isinstance(error, BlazarBadInput):
        return error.sentence
    return f"Missing parameter {field}" if detail.endswith(MISSING_FIELD) else detail


OPEN_QUERY = {**route_options.needs(Right.READ), route_options.PLAIN_PROBLEMS: to_blazar_error}
READ, ACT = (
    OPEN_QUERY | route_options.strict_query(),
    OPEN_QUERY | route_options.needs(Right.ACT) | route_options.strict_query(),
)

Call = Request[Any, Any, Any]
TheLeases = NamedDependency[LeaseService]
TheHosts = NamedDependency[HostService]
LeaseId = Annotated[str, PathParameter(pattern=PATH_PART, description="the lease's id")]
PropertyName = Annotated[str, PathParameter(pattern=PATH_PART, description="the property")]
HostId = Annotated[str, PathParameter(pattern=PATH_PART, description="the host's name")]
OnlyLease = Annotated[str | None, QueryParameter(description="only what is promised to this lease")]
OnlyReservation = Annotated[str | None, QueryParameter(description="only what is promised to this reservation")]
Limit = Annotated[int | None, QueryParameter(ge=1, description="most entries wanted; never more than 10,000")]
LeaseMarker = Annotated[str | None, QueryParameter(description="the id of a lease; only those that follow it")]
HostMarker = Annotated[str | None, QueryParameter(description="the name of a host; only those that follow it")]
Properties = Annotated[dict[str, str | int | float | bool | None], Meta(description="properties of a host, by name")]


def caller_of(request: Call) -> LeaseCaller:
    """Return the caller and its namespace: that of the path, the token's only one, or the default."""
    check_version(request.headers.get(VERSION.name, ""))
    grant = route_options.grant_of(request)
    named = request.path_params.get("ns")
    if named is None:
        opened = grant.namespaces - {ANY}
        named = next(iter(opened)) if len(opened) == 1 and ANY not in grant.namespaces else DEFAULT_NS
        if not grant.opens(named):
            raise BadInput("namespace", sorted(opened), f"one of these, named in the path: /ns/NAMESPACE{BASE}")
    if re.match(NAME, str(named)) is None:
        raise BadInput("namespace", named, f"a name of {NAME_MEANS}, that begins with a letter or digit")
    key = grant.own_key(request.headers.get(IDEMPOTENCY_HEADER))
    return LeaseCaller(route_options.actor_of(request), grant.name, key=key, ns=str(named))


def next_links(request: Call, marker: str | None) -> list[schemas.NextLink] | UnsetType:
    """Return the link to the page after a marker; nothing at the end of the list."""
    if marker is None:
        return UNSET
    query = urlencode({**dict(request.query_params.items()), "marker": marker})
    return [schemas.NextLink(f"{str(request.base_url).rstrip('/')}{request.url.path}?{query}")]


def check_version(header: str) -> None:
    """Refuse a call that asks for another version of the API; the header may name several services."""
    asked = [part.split() for part in header.split(",")]
    wanted = next((words[1] for words in asked if len(words) == 2 and words[0] == SERVICE), API_VERSION)
    if wanted in (API_VERSION, "latest"):
        return
    if VERSION_FORMAT.fullmatch(wanted) is None:
        reason = f"API Version String {wanted} is of invalid format. Must be of format MajorNum.MinorNum."
        raise HTTPException(reason, status_code=HTTPStatus.BAD_REQUEST)
    reason = f"Version {wanted} is not supported by the API. Minimum is {API_VERSION} and maximum is {API_VERSION}."
    raise HTTPException(reason, status_code=HTTPStatus.NOT_ACCEPTABLE)


# --- the service -----------------------------------------------------------------------------------------------------


@get(["/", "/versions"], opt=OPEN_QUERY, summary="List the versions of the reservation API", status_code=300)
async def list_versions(request: Call) -> schemas.VersionList:
    """Return the versions of the API; there is one."""
    caller_of(request)
    base = request.url.path.removesuffix("/versions").rstrip("/")
    return schemas.VersionList([schemas.version_view(f"{str(request.base_url).rstrip('/')}{base}/v1", API_VERSION)])


@get("/plugins", opt=READ, summary="List what can be reserved")
async def list_plugins(request: Call, leases: TheLeases) -> schemas.PluginList:
    """Return the types of resources that can be reserved."""
    caller_of(request)
    return schemas.PluginList(leases.resource_types)


# --- leases ----------------------------------------------------------------------------------------------------------


@get("/leases", opt=READ, summary="List leases")
async def list_leases(
    request: Call, leases: TheLeases, limit: Limit = None, marker: LeaseMarker = None
) -> schemas.LeaseList:
    """Return all leases, in the order of their starts; with `limit` or `marker`, in the order of their ids.

    A list that was cut has `leases_links`, with the link to the next page; it is cut after 10,000 leases at the latest.
    """
    page, last = await leases.page(caller_of(request).ns, marker, limit)
    ordered = in_order_of_start(page) if limit is None and marker is None else page
    return schemas.LeaseList([schemas.lease_view(lease) for lease in ordered], next_links(request, last))


@post("/leases", opt=ACT | route_options.can_dry_run() | {route_options.RESUMES: True}, summary="Create a lease")
async def create_lease(request: Call, leases: TheLeases, data: JSONBody[schemas.NewLease]) -> schemas.LeaseAnswer:
    """Reserve resources for a span of time; answers when they are reserved, or after a minute with what it does."""
    return schemas.LeaseAnswer(schemas.lease_view(await leases.create(caller_of(request), msgspec.to_builtins(data))))


@get("/leases/{lease_id:str}", opt=READ, summary="Get a lease")
async def get_lease(
    request: Call,
    leases: TheLeases,
    lease_id: LeaseId,
    deleted: Annotated[bool, QueryParameter(description="one that was deleted too, while it is remembered")] = False,
) -> schemas.LeaseAnswer:
    """Return a lease with its reservations and events."""
    return schemas.LeaseAnswer(schemas.lease_view(await leases.get(caller_of(request).ns, lease_id, deleted=deleted)))


@put("/leases/{lease_id:str}", opt=ACT, summary="Change a lease")
async def update_lease(
    request: Call, leases: TheLeases, lease_id: LeaseId, data: JSONBody[schemas.LeaseChange]
) -> schemas.LeaseAnswer:
    """Change a lease's name, times or reservations; `end_date: now` ends it."""
    return schemas.LeaseAnswer(
        schemas.lease_view(await leases.update(caller_of(request), lease_id, msgspec.to_builtins(data)))
    )


@delete("/leases/{lease_id:str}", opt=ACT, summary="Delete a lease", status_code=204)
async def delete_lease(request: Call, leases: TheLeases, lease_id: LeaseId) -> None:
    """Delete a lease in any status; answers when it is gone, or after ten seconds."""
    await leases.await_delete(await leases.delete(caller_of(request), lease_id))


@post("/leases/{lease_id:str}/recover", opt=ACT, summary="Recover a lease", status_code=200)
async def recover_lease(request: Call, leases: TheLeases, lease_id: LeaseId) -> schemas.LeaseAnswer:
    """Let a lease leave ERROR for the status that its events derive."""
    return schemas.LeaseAnswer(schemas.lease_view(await leases.recover(caller_of(request), lease_id)))


# --- hosts -----------------------------------------------------------------------------------------------------------


@get("/os-hosts", opt=READ, summary="List hosts")
async def list_hosts(
    request: Call, hosts: TheHosts, limit: Limit = None, marker: HostMarker = None
) -> schemas.HostList:
    """Return all hosts, in the order of their names; a list that was cut has `hosts_links`, to the next page."""
    page, last = await hosts.page(caller_of(request).ns, marker, limit)
    return schemas.HostList([schemas.host_view(host) for host in page], next_links(request, last))


@post(
    "/os-hosts",
    opt=ACT | route_options.can_dry_run() | route_options.reads({"name": "compute-1", "rack": "r1", "cpus": 64}),
    summary="Register a host",
)
async def create_host(request: Call, hosts: TheHosts, data: JSONBody[Properties]) -> schemas.HostAnswer:
    """Register a host by its name; all other fields are its properties."""
    return schemas.HostAnswer(schemas.host_view(await hosts.register(caller_of(request), data)))


@get("/os-hosts/allocations", opt=READ, summary="List allocations")
async def list_allocations(
    request: Call,
    hosts: TheHosts,
    lease_id: OnlyLease = None,
    reservation_id: OnlyReservation = None,
    limit: Limit = None,
    marker: HostMarker = None,
) -> schemas.AllocationList:
    """Return the bookings of all hosts: all of them, or those of one lease or reservation.

    A list that was cut has `allocations_links`, with the link to the next page.
    """
    page, last = await hosts.page(caller_of(request).ns, marker, limit)
    views = [schemas.allocation_view(host, lease_id, reservation_id) for host in page]
    return schemas.AllocationList(views, next_links(request, last))


@get("/os-hosts/properties", opt=READ, summary="List the properties of hosts")
async def list_properties(
    request: Call,
    hosts: TheHosts,
    detail: Annotated[bool, QueryParameter(description="with the values that they have")] = False,
    every: Annotated[bool, QueryParameter(name="all", description="private ones too")] = False,
) -> schemas.PropertyList:
    """Return the properties that reservations can ask for."""
    properties = (await hosts.properties(caller_of(request).ns)).values()
    return schemas.PropertyList(
        [schemas.property_view(prop, detail=detail) for prop in properties if every or not prop.private]
    )


@patch("/os-hosts/properties/{name:str}", opt=ACT, summary="Show a property to everybody, or not")
async def set_property(
    request: Call, hosts: TheHosts, name: PropertyName, data: JSONBody[schemas.PropertyChange]
) -> schemas.PropertyAnswer:
    """Make a property private, so that it is listed only with `all`, or public again."""
    prop = await hosts.show_property(caller_of(request), name, private=data.private)
    return schemas.PropertyAnswer(schemas.property_view(prop, detail=True))


@get("/os-hosts/{host_id:str}", opt=READ, summary="Get a host")
async def get_host(request: Call, hosts: TheHosts, host_id: HostId) -> schemas.HostAnswer:
    """Return a host."""
    return schemas.HostAnswer(schemas.host_view(await hosts.get(caller_of(request).ns, host_id)))


@get("/os-hosts/{host_id:str}/allocation", opt=READ, summary="Get a host's allocation")
async def get_allocation(
    request: Call, hosts: TheHosts, host_id: HostId, lease_id: OnlyLease = None, reservation_id: OnlyReservation = None
) -> schemas.AllocationAnswer:
    """Return the bookings of a host: all of them, or those of one lease or reservation."""
    host = await hosts.get(caller_of(request).ns, host_id)
    return schemas.AllocationAnswer(schemas.allocation_view(host, lease_id, reservation_id))


@put("/os-hosts/{host_id:str}", opt=ACT | route_options.reads({"rack": "r2", "gpu": None}), summary="Change a host")
async def update_host(
    request: Call, hosts: TheHosts, host_id: HostId, data: JSONBody[Properties]
) -> schemas.HostAnswer:
    """Change properties of a host; null removes one."""
    return schemas.HostAnswer(schemas.host_view(await hosts.update(caller_of(request), host_id, data)))


@delete("/os-hosts/{host_id:str}", opt=ACT, summary="Remove a host", status_code=204)
async def delete_host(request: Call, hosts: TheHosts, host_id: HostId) -> None:
    """Remove a host without bookings."""
    await hosts.remove(caller_of(request), host_id)


@post("/os-hosts/{host_id:str}/fail", opt=ACT, summary="Report a host as failed", status_code=200)
async def fail_host(request: Call, hosts: TheHosts, host_id: HostId) -> schemas.HostAnswer:
    """Report a host as failed: its leases get another host, if one is free."""
    return schemas.HostAnswer(schemas.host_view(await hosts.fail(caller_of(request), host_id)))


@post("/os-hosts/{host_id:str}/recover", opt=ACT, summary="Report a host as well again", status_code=200)
async def recover_host(request: Call, hosts: TheHosts, host_id: HostId) -> schemas.HostAnswer:
    """Report a host as up again."""
    return schemas.HostAnswer(schemas.host_view(await hosts.recover(caller_of(request), host_id)))


HANDLERS = (
    list_plugins,
    list_leases, create_lease, get_lease, update_lease, delete_lease, recover_lease,
    list_hosts, create_host, list_allocations, list_properties, set_property, get_host, get_allocation, update_host,
    delete_host, fail_host, recover_host,
)  # fmt: skip


def routes(leases: Callable[[], LeaseService], hosts: Callable[[], HostService]) -> list[OwnedRouter]:
    """Return the routes, once for the caller's own namespace and once for any."""
    provided = {"leases": Provide(leases, sync_to_thread=False), "hosts": Provide(hosts, sync_to_thread=False)}

    def own() -> OwnedRouter:
        return OwnedRouter(V1, route_handlers=HANDLERS, dependencies=provided, response_headers=[VERSION, VARY])

    bases = (ROOT, f"/ns/{{ns:str}}{ROOT}")
    return [OwnedRouter(base, route_handlers=[list_versions, own()], tags=["leases"]) for base in bases]
