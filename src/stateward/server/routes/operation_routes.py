"""The routes of operations: list, get, children, cancel."""

from typing import Annotated

from litestar import get, post
from litestar.params import QueryParameter

from stateward.access import Right
from stateward.domains.request_params import Ns
from stateward.naming import PATH_PART
from stateward.schemas.operations import OperationPage, OperationView
from stateward.server.auth.guards import needs
from stateward.server.http.parameters import Limit, Op
from stateward.server.openapi.problem_responses import problem_responses
from stateward.server.presenter import list_visible
from stateward.server.service import ApiRequest
from stateward.store.records import Key, Operation

TAGS = ["operations"]
Of = Annotated[str, QueryParameter(name="object", pattern=PATH_PART, description="the object that they are about")]


async def show_operation(request: ApiRequest, key: Key) -> OperationView:
    """Return the view of an operation for the caller; raises if there is none, or it is hidden."""
    return request.presenter.required(key, await request.service.reader.operation(key))


@get(
    "/ns/{ns:str}/operations",
    guards=[needs(Right.READ)],
    tags=TAGS,
    summary="List operations",
    responses=problem_responses(),
)
async def list_operations(request: ApiRequest, ns: Ns, of: Of, limit: Limit = 100) -> OperationPage:
    """Return an object's operations, newest first."""
    service, key = request.service, Key(ns, of)

    async def read(most: int) -> list[Operation]:
        return await service.reader.operations_of(key, most)

    most = service.config.page_limit
    return OperationPage(await list_visible(read, request.presenter.operation, service.page_size(limit), most))


@get(
    "/ns/{ns:str}/operations/{op:str}",
    guards=[needs(Right.READ)],
    tags=TAGS,
    summary="Get an operation",
    responses=problem_responses(404),
)
async def get_operation(request: ApiRequest, ns: Ns, op: Op) -> OperationView:
    """Return an operation; one that is being worked on is shown as running."""
    return await show_operation(request, Key(ns, op))


@get(
    "/ns/{ns:str}/operations/{op:str}/children",
    guards=[needs(Right.READ)],
    tags=TAGS,
    summary="List an operation's children",
    responses=problem_responses(404),
)
async def list_children(request: ApiRequest, ns: Ns, op: Op) -> OperationPage:
    """Return the operations that an operation waits for, or waited for."""
    key = Key(ns, op)
    await show_operation(request, key)
    return OperationPage(request.presenter.operations(await request.service.reader.children_of(key)))


@post(
    "/ns/{ns:str}/operations/{op:str}/cancel",
    guards=[needs(Right.ACT)],
    tags=TAGS,
    summary="Cancel an operation",
    status_code=202,
    responses=problem_responses(404, 409),
)
async def cancel_operation(request: ApiRequest, ns: Ns, op: Op) -> OperationView:
    """Cancel an operation: what waits ends at once, what runs is told to stop and then says what has become of it."""
    await show_operation(request, Key(ns, op))
    await request.service.engine.cancel(ns, op, request.grant.name)
    return await show_operation(request, Key(ns, op))


ROUTES = (list_operations, get_operation, list_children, cancel_operation)
