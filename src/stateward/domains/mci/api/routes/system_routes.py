"""System routes: readiness, connections, providers, and the outcome of requests."""

from time import time

from litestar import Response, get
from msgspec import Struct

from stateward.domains.mci.api import tumblebug_params
from stateward.domains.mci.api.connection_views import CREDENTIAL_HOLDER, connection_view, region_view
from stateward.domains.mci.api.context import AnyResponse, TumblebugRequest
from stateward.domains.mci.api.lenient_json import parse_int
from stateward.domains.mci.api.request_log import MAX_REQUESTS, LoggedRequest, RequestView
from stateward.domains.mci.api.request_log_store import all_stored_requests, stored_requests
from stateward.domains.mci.api.schemas import ConnectionView
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


@get("/readyz", opt=tumblebug_params.OPEN)
async def readyz(request: TumblebugRequest) -> Ready:
    """Tell whether the server is ready."""
    await check_readiness(request.service.engine)
    return Ready("The server is ready", True, True)


@get("/connConfig", opt=tumblebug_params.READ)
async def list_connections(request: TumblebugRequest, holder: tumblebug_params.Holder = None) -> AnyResponse:
    """Return the connections that the caller's namespaces may use."""
    connections = await request.visible_connections() if (holder or CREDENTIAL_HOLDER) == CREDENTIAL_HOLDER else []
    governs = grant_of(request).governs_all
    return Response(
        {"connectionconfig": [connection_view(connection, credential=governs) for connection in connections]}
    )


@get("/connConfig/{name:str}", opt=tumblebug_params.READ)
async def get_connection(request: TumblebugRequest, name: tumblebug_params.Name) -> ConnectionView:
    """Return a connection."""
    connection = await request.visible_connection(name)
    return connection_view(connection, credential=grant_of(request).governs_all)


@get("/provider", opt=tumblebug_params.READ)
async def list_providers(request: TumblebugRequest) -> dict[str, list[str]]:
    """Return the providers of the visible connections."""
    return {"output": sorted({connection.provider for connection in await request.visible_connections()})}


@get("/provider/{name:str}/region", opt=tumblebug_params.READ)
async def list_regions(request: TumblebugRequest, name: tumblebug_params.Name) -> AnyResponse:
    """Return the regions of a provider with visible connections."""
    connections = await request.visible_connections()
    regions = {
        connection.region: region_view(connection) for connection in connections if connection.provider == name.lower()
    }
    if not regions:
        raise UnknownName("provider", name, sorted({connection.provider for connection in connections}))
    return Response({"regions": list(regions.values())})


# --- calls -----------------------------------------------------------------------------------------------------------


@get("/request/{name:str}", opt=tumblebug_params.READ)
async def get_request(request: TumblebugRequest, name: tumblebug_params.Name) -> RequestView:
    """Return the outcome of a request."""
    grant = grant_of(request)
    calls = [*request.context.request_log.find(name), *await stored_requests(request.service.engine, name)]
    visible = [call for call in calls if call.visible_to(grant)]
    if not visible:
        raise NoSuchRequest("", name)
    # The caller's own request comes first, then one that changes something.
    return await _view(request, max(visible, key=lambda call: (call.token == grant.token, call.changes, call.began)))


@get("/requests", opt=tumblebug_params.READ)
async def list_requests(
    request: TumblebugRequest,
    status: tumblebug_params.RequestStatus = None,
    method: tumblebug_params.RequestMethod = None,
    url: tumblebug_params.RequestUrl = None,
    minutes: tumblebug_params.RequestMinutes = None,
) -> AnyResponse:
    """Return the outcomes of the latest requests, newest first."""
    wanted = tumblebug_params.check_choice("status", status, "Handling", "Error", "Success")
    since = time() - 60 * parse_int("time", minutes, 0, 1_000_000) if minutes else 0.0
    logged = [*await all_stored_requests(request.service.engine), *request.context.request_log.all()]
    calls = {(call.token, call.id): call for call in sorted(logged, key=lambda call: call.changes)}
    chosen = [
        call
        for call in calls.values()
        if call.visible_to(grant_of(request)) and (method or call.method).upper() == call.method
        if (url or "") in call.url and call.began >= since
    ]
    latest = sorted(chosen, key=lambda call: -call.began)[:MAX_REQUESTS]
    shown = [await _view(request, call) for call in latest]
    return Response({"requests": [view for view in shown if not wanted or view.status == wanted]})


async def _view(request: TumblebugRequest, past: LoggedRequest) -> RequestView:
    reader, key = request.service.engine.store.reader, past.operation
    return past.view(None if key is None else await reader.operation(Key(*key)), time())


ROUTES = (readyz, list_connections, get_connection, list_providers, list_regions, get_request, list_requests)
