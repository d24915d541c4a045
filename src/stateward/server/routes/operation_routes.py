"""The routes of operations: list, get, children, cancel, signal."""

from collections.abc import Collection, Sequence
from typing import Annotated

from litestar import get, post
from litestar.params import JSONBody, QueryParameter
from msgspec.structs import replace

from stateward.access import Right
from stateward.access.roles import ACTORS
from stateward.errors import BadInput, UnknownValue
from stateward.naming import PATH_PART
from stateward.plugin.request_params import IdempotencyKey, Ns
from stateward.schemas.operations import OperationPage, OperationView
from stateward.schemas.params import TEXT
from stateward.schemas.request_bodies import NewSignal
from stateward.schemas.timeline import TimelineView
from stateward.server.http.parameters import AfterText, KindFilter, Limit, Op, SignalName
from stateward.server.operation_timeline import timeline
from stateward.server.routes.declare import api_route
from stateward.server.routes.object_routes import readable_namespaces
from stateward.server.service import ApiRequest
from stateward.server.views import span_view, to_datetime
from stateward.store.filters import JournalFilter, OperationCursor, OperationFilter
from stateward.store.port import Reader
from stateward.store.records import STATUSES, Key, Status

TAG = "operations"
Of = Annotated[
    str | None, QueryParameter(name="object", pattern=PATH_PART, description="only what was done to this object")
]
StatusFilter = Annotated[
    str | None,
    QueryParameter(pattern=TEXT, description=f"one of {', '.join(Status)}, or several with commas between them"),
]
ActionFilter = Annotated[str | None, QueryParameter(name="action", pattern=TEXT, description="only this action")]
WhoFilter = Annotated[str | None, QueryParameter(pattern=TEXT, description="only what this person or client asked for")]
GroupFilter = Annotated[
    str | None, QueryParameter(pattern=PATH_PART, description="only the parts of the entry with this operation")
]

WithParts = Annotated[
    bool, QueryParameter(description="whether the other operations of an action on many objects are cancelled too")
]

MAX_SPANS, MAX_PARTS = 1_000, 100
"""How many journal entries, how many lines of output, and how many parts a timeline has at most."""

MAX_READS = 10
"""How often a page is read on, if nothing matches, or all that was found is hidden from the caller."""

READ_ROWS = 5_000
"""How many operations one read looks at, if no index has what its filter names: about 5 ms."""


async def show_operation(request: ApiRequest, key: Key) -> OperationView:
    """Return the view of an operation for the caller; raises if there is none, or it is hidden."""
    return request.presenter.required(key, await request.service.reader.operation(key))


@api_route(get, "/ns/{ns:str}/operations", Right.READ, TAG, "List operations")
async def list_operations(
    request: ApiRequest,
    ns: Ns,
    of: Of = None,
    kind: KindFilter = None,
    action: ActionFilter = None,
    status: StatusFilter = None,
    who: WhoFilter = None,
    group: GroupFilter = None,
    after: AfterText = None,
    limit: Limit = 100,
) -> OperationPage:
    """Return operations, newest first.

    An action on a composite or on many objects is one entry: its operation, or the first one, with the number of its
    `parts`. An entry matches if its operation or one of its parts does. `group` lists the parts of an entry, and
    `object` everything that was done to one object.

    With a filter, a page looks at a limited number of operations, so it can be empty and have a `next`.
    """
    only = OperationFilter(ns, of, kind, action, _statuses(status), who, group)
    return await _page(request, only, [ns], after, limit)


@api_route(get, "/operations", Right.READ, TAG, "List operations of all namespaces")
async def list_all_operations(
    request: ApiRequest,
    of: Of = None,
    kind: KindFilter = None,
    action: ActionFilter = None,
    status: StatusFilter = None,
    who: WhoFilter = None,
    after: AfterText = None,
    limit: Limit = 100,
) -> OperationPage:
    """Return the operations of all namespaces of the token, newest first, as the list of one namespace does."""
    only = OperationFilter("", of, kind, action, _statuses(status), who)
    return await _page(request, only, await readable_namespaces(request), after, limit)


def _statuses(given: str | None) -> tuple[Status, ...] | None:
    if given is None:
        return None
    for word in given.split(","):
        _require_known("status", word, STATUSES)
    return tuple(STATUSES[word] for word in given.split(","))


def _require_known(field: str, given: str, known: Collection[str]) -> None:
    if given not in known:
        raise UnknownValue(field, field, given, known)


async def _page(
    request: ApiRequest, only: OperationFilter, namespaces: Sequence[str], after: str | None, limit: int
) -> OperationPage:
    """Return a page of what a filter matches in some namespaces, among so many operations: `next` continues there."""
    await _require_known_names(request, only, namespaces)
    reader, most = request.service.reader, request.service.page_size(limit)
    cursor, shown, is_last = _cursor(after), list[OperationView](), False
    for _ in range(MAX_READS):
        reached = await _reach(reader, namespaces, cursor) if only.needs_walk else None
        filters = [replace(only, ns=ns, oldest=reached) for ns in namespaces]
        operations = [operation for each in filters for operation in await reader.list_operations(each, cursor, most)]
        operations = sorted(operations, key=lambda operation: (operation.created, operation.id), reverse=True)[:most]
        taken = operations[: most - len(shown)]
        cursor = OperationCursor(taken[-1].created, taken[-1].id) if taken else cursor
        shown += request.presenter.operations(taken)
        is_read = len(operations) < most and len(taken) == len(operations)
        is_last = is_read and reached is None
        cursor = reached if is_read and reached is not None else cursor
        if is_last or len(shown) == most:
            break
    items = await _with_parts(reader, shown) if only.wants_entries else shown
    return OperationPage(items, None if is_last or cursor is None else f"{cursor.created!r}_{cursor.id}")


async def _reach(reader: Reader, namespaces: Sequence[str], before: OperationCursor | None) -> OperationCursor | None:
    """Return the last operation that one read looks at, in all namespaces; None: all that are left."""
    rows = READ_ROWS // max(len(namespaces), 1) + 1
    reaches = [await reader.operation_reach(ns, before, rows) for ns in namespaces]
    return max((reach for reach in reaches if reach is not None), default=None)


def _cursor(after: str | None) -> OperationCursor | None:
    if after is None:
        return None
    created, _, id_ = after.partition("_")
    try:
        return OperationCursor(float(created), id_)
    except ValueError:
        raise BadInput("after", after, "`next` of the page before") from None


async def _require_known_names(request: ApiRequest, only: OperationFilter, namespaces: Sequence[str]) -> None:
    """Refuse a kind or an action that no operation can have; kinds of plug-ins that are not loaded may have objects."""
    kinds = request.service.engine.kinds
    if only.kind is not None and only.kind not in kinds:
        if not (await request.service.reader.count_by_namespace(namespaces, only.kind)).counts:
            _require_known("kind", only.kind, [kind.name for kind in kinds])
    elif only.action is not None:
        named = kinds if only.kind is None else [kinds[only.kind]]
        _require_known("action", only.action, sorted({action for kind in named for action in kind.lifecycle.actions}))


async def _with_parts(reader: Reader, entries: Sequence[OperationView]) -> list[OperationView]:
    """Return entries with the numbers of their parts."""
    counts: dict[Key, dict[Status, int]] = {}
    for ns in {entry.ns for entry in entries}:
        parts = await reader.count_parts(ns, [entry.id for entry in entries if entry.ns == ns])
        counts.update((Key(ns, id_), by_status) for id_, by_status in parts.items())
    return [replace(entry, parts=counts.get(Key(entry.ns, entry.id))) for entry in entries]


@api_route(get, "/ns/{ns:str}/operations/{op:str}", Right.READ, TAG, "Get an operation", 404)
async def get_operation(request: ApiRequest, ns: Ns, op: Op) -> OperationView:
    """Return an operation; while a worker owns it, its status is running."""
    (shown,) = await _with_parts(request.service.reader, [await show_operation(request, Key(ns, op))])
    return shown


@api_route(get, "/ns/{ns:str}/operations/{op:str}/children", Right.READ, TAG, "List an operation's children", 404)
async def list_children(request: ApiRequest, ns: Ns, op: Op) -> OperationPage:
    """Return the child operations of an operation."""
    key = Key(ns, op)
    await show_operation(request, key)
    return OperationPage(request.presenter.operations(await request.service.reader.children_of(key)))


@api_route(
    get, "/ns/{ns:str}/operations/{op:str}/timeline", Right.READ, TAG, "Show where an operation's time went", 404
)
async def get_timeline(request: ApiRequest, ns: Ns, op: Op) -> TimelineView:
    """Return an operation with its waits, attempts, steps, provider calls, undos, parts, events and output.

    Each has its times. Of many calls, the latest are kept, and calls that differ only in their times are one span.
    """
    key, reader, presenter = Key(ns, op), request.service.reader, request.presenter
    operation = await reader.operation(key)
    (shown,) = await _with_parts(reader, [presenter.required(key, operation)])
    assert operation is not None
    entries = await reader.journal(0, MAX_SPANS, JournalFilter(ns, operation.object, op=op, since=operation.created))
    parts = await reader.list_operations(OperationFilter(ns, group=op), None, MAX_PARTS) if shown.parts else []
    disclosure = presenter.disclosure
    spans = timeline(
        disclosure.operation(operation) or operation,
        [shown_entry for entry in entries if (shown_entry := disclosure.entry(entry)) is not None],
        (await reader.progress_of(key, 0))[-MAX_SPANS:],
        [shown_part for part in parts if part.id != op and (shown_part := disclosure.operation(part)) is not None],
    )
    return TimelineView(shown, [span_view(span) for span in spans], to_datetime(await reader.time()))


@api_route(
    post, "/ns/{ns:str}/operations/{op:str}/cancel", Right.ACT, TAG, "Cancel an operation", 404, 409, status_code=202
)
async def cancel_operation(request: ApiRequest, ns: Ns, op: Op, parts: WithParts = False) -> OperationView:
    """Cancel an operation: one that waits ends at once; the worker of a running one stops it and reports back.

    With `parts`, all operations of an action on many objects are cancelled that have not ended. Only callers that can
    request an action can cancel its operations.
    """
    view, engine, grant = await show_operation(request, Key(ns, op)), request.service.engine, request.grant
    cancel = engine.cancel_group if parts and view.group == op else engine.cancel
    await cancel(ns, op, grant.name, actor=ACTORS[grant.role])
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
) -> OperationView:
    """Send a signal to an operation that has not ended. It is kept until the operation's handler waits for it.

    Several signals of one name are taken in the order of their arrival, one for each wait. Only callers that can
    request the operation's action can send it signals.
    """
    await show_operation(request, Key(ns, op))
    grant = request.grant
    await request.service.engine.signal(
        ns, op, name, data.payload, actor=ACTORS[grant.role], who=grant.name, key=grant.own_key(key)
    )
    return await show_operation(request, Key(ns, op))


ROUTES = (
    list_operations,
    list_all_operations,
    get_operation,
    get_timeline,
    list_children,
    cancel_operation,
    send_signal,
)
