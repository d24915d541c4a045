"""The routes of operations: list, get, children, cancel, signal."""

from typing import Annotated

from litestar import Response, get, post
from litestar.params import JSONBody, QueryParameter

from stateward.access import Right
from stateward.access.roles import ACTORS
from stateward.naming import PATH_PART
from stateward.plugin.request_params import IdempotencyKey, Ns
from stateward.schemas.operations import OperationPage, OperationView
from stateward.schemas.request_bodies import NewSignal
from stateward.server.http.parameters import Limit, Op, SignalName
from stateward.server.presenter import list_visible
from stateward.server.routes.declare import api_route
from stateward.server.service import ApiRequest
from stateward.store.records import Key, Operation

TAG = "operations"
Of = Annotated[str, QueryParameter(name="object", pattern=PATH_PART, description="the object that they are about")]


async def show_operation(request: ApiRequest, key: Key) -> OperationView:
    """Return the view of an operation for the caller; raises if there is none, or it is hidden."""
    return request.presenter.required(key, await request.service.reader.operation(key))


@api_route(get, "/ns/{ns:str}/operations", Right.READ, TAG, "List operations")
async def list_operations(request: ApiRequest, ns: Ns, of: Of, limit: Limit = 100) -> OperationPage:
    """Return an object's operations, newest first."""
    service, key = request.service, Key(ns, of)

    async def read(most: int) -> list[Operation]:
        return await service.reader.operations_of(key, most)

    most = service.config.page_limit
    return OperationPage(await list_visible(read, request.presenter.operation, service.page_size(limit), most))


@api_route(get, "/ns/{ns:str}/operations/{op:str}", Right.READ, TAG, "Get an operation", 404)
async def get_operation(request: ApiRequest, ns: Ns, op: Op) -> OperationView:
    """Return an operation; while a worker owns it, its status is running."""
    return await show_operation(request, Key(ns, op))


@api_route(get, "/ns/{ns:str}/operations/{op:str}/children", Right.READ, TAG, "List an operation's children", 404)
async def list_children(request: ApiRequest, ns: Ns, op: Op) -> OperationPage:
    """Return the child operations of an operation."""
    key = Key(ns, op)
    await show_operation(request, key)
    return OperationPage(request.presenter.operations(await request.service.reader.children_of(key)))


@api_route(
    post, "/ns/{ns:str}/operations/{op:str}/cancel", Right.ACT, TAG, "Cancel an operation", 404, 409, status_code=202
)
async def cancel_operation(request: ApiRequest, ns: Ns, op: Op) -> OperationView:
    """Cancel an operation: one that waits ends at once; the worker of a running one stops it and reports back."""
    await show_operation(request, Key(ns, op))
    await request.service.engine.cancel(ns, op, request.grant.name)
    return await show_operation(request, Key(ns, op))


NO_PAYLOAD = NewSignal()


@api_route(
    post,
    "/ns/{ns:str}/operations/{op:str}/signals/{name:str}",
    Right.ACT,
    TAG,
    "Send a signal to an operation",
    *(404, 409, 413),
    status_code=202,
)
async def send_signal(
    request: ApiRequest,
    ns: Ns,
    op: Op,
    name: SignalName,
    data: JSONBody[NewSignal] = NO_PAYLOAD,
    key: IdempotencyKey = None,
) -> Response[OperationView]:
    """Send a signal to an operation that has not ended. It is kept until the operation's handler waits for it.

    Several signals of one name are taken in the order of their arrival, one for each wait.
    """
    await show_operation(request, Key(ns, op))
    grant = request.grant
    is_new = await request.service.engine.signal(
        ns, op, name, data.payload, actor=ACTORS[grant.role], who=grant.name, key=grant.own_key(key)
    )
    headers = {} if is_new else {"Idempotency-Replayed": "true"}
    return Response(await show_operation(request, Key(ns, op)), status_code=202, headers=headers)


ROUTES = (list_operations, get_operation, list_children, cancel_operation, send_signal)
