"""System routes: readiness, connections, providers, and the outcome of requests."""

from time import time

from litestar import Response, get
from msgspec import Struct

from stateward.domains.mci.api.connection_views import CREDENTIAL_HOLDER, connection_view, region_view
from stateward.domains.mci.api.context import AnyResponse, TumblebugRequest
from stateward.domains.mci.api.lenient_json import parse_int
from stateward.domains.mci.api.request_log import MAX_REQUESTS, LoggedRequest, RequestView
from stateward.domains.mci.api.request_log_store import all_stored_requests, stored_requests
from stateward.domains.mci.api.schemas import ConnectionView
from stateward.domains.mci.api.tumblebug_params import (
    OPEN,
    READ,
    Holder,
    Name,
    RequestMethod,
    RequestMinutes,
    RequestStatus,
    RequestUrl,
    check_choice,
)
from stateward.domains.mci.errors import NoSuchRequest
from stateward.errors import UnknownName
from stateward.plugin.readiness import check_readiness
from stateward.plugin.route_options import grant_of
from stateward.store.records import Key


class Ready(Struct, frozen=True):
    """Whether the server is ready."""

    message: str
    ready: bool
    initialized: bool


@get("/readyz", opt=OPEN)
async def readyz(request: TumblebugRequest) -> Ready:
    """Tell whether the server is ready."""
    await check_readiness(request.service.engine)
    return Ready("The server is ready", True, True)


@get("/connConfig", opt=READ)
async def list_connections(request: TumblebugRequest, holder: Holder = None) -> AnyResponse:
    """Return the connections that the caller's namespaces may use."""
    found = await request.visible_connections() if (holder or CREDENTIAL_HOLDER) == CREDENTIAL_HOLDER else []
    governs = grant_of(request).governs_all
    return Response({"connectionconfig": [connection_view(one, credential=governs) for one in found]})


@get("/connConfig/{name:str}", opt=READ)
async def get_connection(request: TumblebugRequest, name: Name) -> ConnectionView:
    """Return a connection."""
    found = await request.visible_connection(name)
    return connection_view(found, credential=grant_of(request).governs_all)


@get("/provider", opt=READ)
async def list_providers(request: TumblebugRequest) -> dict[str, list[str]]:
    """Return the providers of the visible connections."""
    return {"output": sorted({one.provider for one in await request.visible_connections()})}


@get("/provider/{name:str}/region", opt=READ)
async def list_regions(request: TumblebugRequest, name: Name) -> AnyResponse:
    """Return the regions of a provider with visible connections."""
    found = await request.visible_connections()
    regions = {one.region: region_view(one) for one in found if one.provider == name.lower()}
    if not regions:
        raise UnknownName("provider", name, sorted({one.provider for one in found}))
    return Response({"regions": list(regions.values())})


# --- calls -----------------------------------------------------------------------------------------------------------


@get("/request/{name:str}", opt=READ)
async def get_request(request: TumblebugRequest, name: Name) -> RequestView:
    """Return the outcome of a request."""
    grant = grant_of(request)
    calls = [*request.context.request_log.find(name), *await stored_requests(request.service.engine, name)]
    visible = [one for one in calls if one.visible_to(grant)]
    if not visible:
        raise NoSuchRequest("", name)
    # The caller's own request comes first, then one that changes something.
    return await _view(request, max(visible, key=lambda one: (one.token == grant.token, one.changes, one.began)))


@get("/requests", opt=READ)
async def list_requests(
    request: TumblebugRequest,
    status: RequestStatus = None,
    method: RequestMethod = None,
    url: RequestUrl = None,
    minutes: RequestMinutes = None,
) -> AnyResponse:
    """Return the outcomes of the latest requests, newest first."""
    wanted = check_choice("status", status, "Handling", "Error", "Success")
    since = time() - 60 * parse_int("time", minutes, 0, 1_000_000) if minutes else 0.0
    found = [*await all_stored_requests(request.service.engine), *request.context.request_log.all()]
    calls = {(one.token, one.id): one for one in sorted(found, key=lambda one: one.changes)}
    chosen = [
        one
        for one in calls.values()
        if one.visible_to(grant_of(request)) and (method or one.method).upper() == one.method
        if (url or "") in one.url and one.began >= since
    ]
    latest = sorted(chosen, key=lambda one: -one.began)[:MAX_REQUESTS]
    shown = [await _view(request, one) for one in latest]
    return Response({"requests": [one for one in shown if not wanted or one.status == wanted]})


async def _view(request: TumblebugRequest, past: LoggedRequest) -> RequestView:
    reader, key = request.service.engine.store.reader, past.operation
    return past.view(None if key is None else await reader.operation(Key(*key)), time())


ROUTES = (readyz, list_connections, get_connection, list_providers, list_regions, get_request, list_requests)
