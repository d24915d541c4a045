"""The routes of objects: namespaces, list, get, create, labels."""

from collections.abc import Sequence
from datetime import datetime
from time import time

import msgspec
from litestar import Response, get, post, put
from litestar.datastructures import ResponseHeader
from litestar.openapi import ResponseSpec
from litestar.params import JSONBody
from msgspec.structs import replace

from stateward.access import Right
from stateward.access.roles import ACTORS
from stateward.access.tokens import ANY, SYSTEM
from stateward.engine import Engine, NotFound
from stateward.engine.errors import VersionMismatch
from stateward.engine.kinds import Kinds
from stateward.engine.protection import effective_flag, keep_flag, namespace_flag
from stateward.errors import BadInput, UnknownName, UnknownValue
from stateward.lifecycle import Lifecycle
from stateward.plugin.request_params import IdempotencyKey, Ns
from stateward.schemas.objects import GroupCount, NamespaceView, ObjectCounts, ObjectPage, ObjectView, ProtectionView
from stateward.schemas.operations import AcceptedView
from stateward.schemas.problems import EffectiveProtection, FlagView
from stateward.schemas.request_bodies import Forget, NewLabels, NewObject, NewProtection
from stateward.server.auth.guards import require_priority
from stateward.server.errors import Forbidden
from stateward.server.http.fast_path import JsonReply
from stateward.server.http.parameters import (
    AfterCursor,
    GroupFields,
    Id,
    IdFilter,
    IfMatch,
    IfNoneMatch,
    KindFilter,
    LabelFilter,
    Limit,
    ParentFilter,
    Sort,
    StateFilter,
)
from stateward.server.http.preconditions import is_unchanged, required_version
from stateward.server.presenter import sees_internal
from stateward.server.routes.declare import api_route
from stateward.server.routes.kind_routes import public_kind
from stateward.server.routes.object_sorting import MAX_ID_CHARS, decode_cursor, encode_cursor, parse_sort
from stateward.server.service import ApiRequest
from stateward.store.changes import Changes
from stateward.store.filters import GroupColumn, GroupField, Page, Selector, SortedPage
from stateward.store.port import Tx
from stateward.store.records import JournalEntry, Key, Object

TAG = "objects"
MAX_DELAY_S = 366 * 86_400
"""How far in the future the start of an operation may be."""
MAX_GROUPS = 10_000
"""The largest number of groups in one response."""

ETAG = ResponseHeader(name="ETag", description="the object's version", documentation_only=True)


@api_route(get, "/namespaces", Right.READ, TAG, "List the namespaces")
async def list_namespaces(request: ApiRequest) -> list[NamespaceView]:
    """Return the namespaces of the token that have objects, with counts by kind and state."""
    census = await request.service.reader.count_by_namespace(await readable_namespaces(request))
    namespaces: dict[str, dict[str, dict[str, int]]] = {}
    for (ns, kind, state), count in sorted(census.counts.items()):
        namespaces.setdefault(ns, {}).setdefault(kind, {})[state] = count
    return [NamespaceView(ns, counts) for ns, counts in namespaces.items()]


async def readable_namespaces(request: ApiRequest) -> list[str]:
    """Return the namespaces of the caller's token."""
    if ANY not in request.grant.namespaces:
        return sorted(request.grant.namespaces)
    return [ns for ns in await request.service.reader.namespaces() if ns != SYSTEM]


async def require_known_labels(request: ApiRequest, chosen: Selector, field: str = "label") -> None:
    """Raise if a selector names a label that no object which the caller may read carries.

    It reads the labels of every object, so it is called only where a selection has found nothing.
    """
    wanted = [name for name, _ in chosen.labels]
    reader = request.service.reader
    asked = [chosen.ns] if isinstance(chosen.ns, str) else chosen.ns
    if not wanted or set(wanted) <= set(await reader.label_keys(asked)):
        return
    known = await reader.label_keys(await readable_namespaces(request))
    for name in wanted:
        if name not in known:
            raise UnknownValue(field, "label", name, known)


@api_route(get, "/ns/{ns:str}/objects", Right.READ, TAG, "List objects")
async def list_objects(
    request: ApiRequest,
    ns: Ns,
    kind: KindFilter = None,
    states: StateFilter = None,
    parent: ParentFilter = None,
    labels: LabelFilter = None,
    q: IdFilter = None,
    sort: Sort = None,
    after: AfterCursor = None,
    limit: Limit = 100,
) -> ObjectPage:
    """Return a page of the matching objects, in the order of their ids; every page costs the same.

    `state` may name several states, with commas between them; `q` is a part of the id, case-insensitive. With `sort`,
    the order is another one, and the cost of a page depends on the number of matching objects.
    """
    chosen = object_selector(request, ns, kind, states, parent, labels, q)
    if sort is not None:
        return await _sorted_page(request, chosen, sort, after, limit)
    if after is not None and len(after) > MAX_ID_CHARS:
        raise BadInput("after", after, "`next` of the page before")
    most = request.service.page_size(limit)
    records = await request.service.reader.list_objects(chosen, Page(after, most))
    if not records and after is None:
        await require_known_labels(request, chosen)
    presenter = request.presenter
    items = [presenter.object(record) for record in records]
    return ObjectPage(items, items[-1].id if len(items) == most else None)


@api_route(get, "/ns/{ns:str}/counts", Right.READ, TAG, "Count objects")
async def count_objects(
    request: ApiRequest,
    ns: Ns,
    by: GroupFields = "kind,state",
    kind: KindFilter = None,
    states: StateFilter = None,
    parent: ParentFilter = None,
    labels: LabelFilter = None,
    q: IdFilter = None,
) -> ObjectCounts:
    """Count the matching objects by the values of some fields: `kind`, `state`, `parent`, `label.NAME`.

    The filters are those of the list. The database counts; no object is read.
    """
    names = by.split(",")
    fields = tuple(_group_field(by, name) for name in names)
    chosen = object_selector(request, ns, kind, states, parent, labels, q)
    counts = await request.service.reader.count_groups(chosen, fields, MAX_GROUPS + 1)
    if not counts:
        await require_known_labels(request, chosen)
    if len(counts) > MAX_GROUPS:
        raise BadInput("by", by, f"fields with at most {MAX_GROUPS:,} different values together")
    rows = [GroupCount(list(values), count) for values, count in counts.items()]
    rows.sort(key=lambda row: [value or "" for value in row.values])
    return ObjectCounts(names, rows, sum(row.count for row in rows))


def _group_field(by: str, name: str) -> GroupField:
    label = name.removeprefix("label.")
    if label != name and label:
        return GroupField(GroupColumn.LABELS, label)
    if name not in ("kind", "state", "parent"):
        raise BadInput("by", by, "kind, state, parent or label.NAME, or several of them with commas")
    return GroupField(GroupColumn(name))


@api_route(get, "/objects", Right.READ, TAG, "List objects of all namespaces")
async def list_all_objects(
    request: ApiRequest,
    kind: KindFilter = None,
    states: StateFilter = None,
    labels: LabelFilter = None,
    q: IdFilter = None,
    sort: Sort = None,
    after: AfterCursor = None,
    limit: Limit = 100,
) -> ObjectPage:
    """Return a page of the matching objects in all namespaces of the token, sorted by their ids or as `sort` says."""
    namespaces = tuple(await readable_namespaces(request))
    chosen = object_selector(request, namespaces, kind, states, None, labels, q)
    return await _sorted_page(request, chosen, sort or "id", after, limit)


def object_selector(
    request: ApiRequest,
    ns: str | tuple[str, ...],
    kind: str | None,
    states: str | None,
    parent: str | None,
    labels: Sequence[str] | None,
    q: str | None,
) -> Selector:
    """Return the selector of a query's parameters; raises for states that no kind has."""
    wishes = tuple((name, value) for name, _, value in (label.partition("=") for label in labels or ()))
    named = None if states is None else tuple(filter(None, states.split(",")))
    if named is not None:
        request.service.engine.kinds.require_states(kind, named)
    return Selector(ns, kind, parent, named, wishes, q)


async def _sorted_page(request: ApiRequest, chosen: Selector, sort: str, after: str | None, limit: int) -> ObjectPage:
    order = parse_sort(sort, chosen.kind, request.service.engine.kinds, internal=sees_internal(request.grant))
    most = request.service.page_size(limit)
    page = SortedPage(order, None if after is None else decode_cursor(after, order), most)
    rows = await request.service.reader.list_sorted(chosen, page)
    if not rows and after is None:
        await require_known_labels(request, chosen)
    presenter = request.presenter
    items = [presenter.object(record) for _, record in rows]
    return ObjectPage(items, encode_cursor(rows[-1][0], rows[-1][1].key) if len(items) == most else None)


@api_route(
    get,
    "/ns/{ns:str}/objects/{id:str}",
    Right.READ,
    TAG,
    "Get an object",
    404,
    response_headers=[ETAG],
    responses={304: ResponseSpec(None, description="The caller has seen this version already.")},
)
async def get_object(request: ApiRequest, ns: Ns, id: Id, if_none_match: IfNoneMatch = None) -> Response[ObjectView]:  # noqa: A002
    """Return an object; its version is its ETag. With `If-None-Match` of this version, the response is 304."""
    service = request.service
    record = await service.engine.record(ns, id)
    if is_unchanged(if_none_match, record.version):
        return JsonReply(None, record.version, status=304)
    return JsonReply(request.presenter.object(record), record.version)


@api_route(
    post,
    "/ns/{ns:str}/objects",
    Right.ACT,
    TAG,
    "Create an object",
    *(404, 409, 413, 422),
    status_code=202,
    response_headers=[ETAG],
)
async def create_object(
    request: ApiRequest, ns: Ns, data: JSONBody[NewObject], key: IdempotencyKey = None
) -> Response[AcceptedView]:
    """Create an object, by the first action of its lifecycle: `create`, or the only one there is."""
    require_priority(request.grant, data.priority)
    engine = request.service.engine
    lifecycle = creatable_lifecycle(engine, data.kind)
    accepted = await engine.create(
        ns,
        data.id,
        data.kind,
        lifecycle.creating_action(data.action),
        spec=data.spec,
        labels=data.labels,
        parent=data.parent,
        queue=data.queue,
        args=data.args,
        facts=data.facts,
        priority=data.priority,
        not_before=start_time(data.not_before),
        actor=ACTORS[request.grant.role],
        who=request.grant.name,
        key=request.grant.own_key(key),
    )
    return JsonReply(request.presenter.accepted(accepted), accepted.object.version, status=202)


def start_time(asked: datetime | None) -> float:
    """Return the time before which an operation must not start; its object waits in transition until then."""
    if asked is None:
        return 0.0
    if asked.timestamp() > time() + MAX_DELAY_S:
        raise BadInput("not_before", asked.isoformat(), f"a time within {MAX_DELAY_S // 86_400} days")
    return asked.timestamp()


def creatable_lifecycle(engine: Engine, kind: str) -> Lifecycle:
    """Return the lifecycle of a kind; raises unless the kind allows creation over the generic API."""
    try:
        known_kind = public_kind(engine, kind)
    except UnknownName as error:
        raise BadInput("kind", kind, f"one of {', '.join(sorted(error.known))}") from error
    if not known_kind.general:
        maker = known_kind.made_by or f"their domain (/api/v1/{known_kind.name.partition('.')[0]})"
        raise Forbidden(
            Right.ACT, why=f"objects of kind {known_kind.name} are made by {maker}, not over the general API"
        )
    return known_kind.lifecycle


@api_route(
    put,
    "/ns/{ns:str}/objects/{id:str}/labels",
    Right.ACT,
    TAG,
    "Set an object's labels",
    *(404, 412, 413),
    response_headers=[ETAG],
)
async def set_labels(
    request: ApiRequest,
    ns: Ns,
    id: Id,  # noqa: A002 - the path's word
    data: JSONBody[NewLabels],
    if_match: IfMatch = None,
) -> Response[ObjectView]:
    """Replace all labels of an object."""
    version = await required_version(request.service, Key(ns, id), if_match)
    engine, actor, who = request.service.engine, ACTORS[request.grant.role], request.grant.name
    record = await engine.store.transact(
        lambda tx: replace_labels(tx, engine.kinds, Key(ns, id), data.labels, version, actor, who)
    )
    return JsonReply(request.presenter.object(record), record.version)


@api_route(
    put,
    "/ns/{ns:str}/objects/{id:str}/protection",
    Right.ACT,
    TAG,
    "Protect an object against deletion",
    *(404, 413),
    response_headers=[ETAG],
)
async def set_protection(request: ApiRequest, ns: Ns, id: Id, data: JSONBody[NewProtection]) -> Response[ObjectView]:  # noqa: A002
    """Protect an object, and what is below it, against removal, or lift that; the journal says who did it."""
    actor, who = ACTORS[request.grant.role], request.grant.name
    reason = data.reason if data.protected else None
    record = await request.service.engine.protect(ns, id, reason, actor=actor, who=who)
    return JsonReply(request.presenter.object(record), record.version)


@api_route(get, "/ns/{ns:str}/objects/{id:str}/protection", Right.READ, TAG, "Get what protects an object", 404)
async def get_protection(request: ApiRequest, ns: Ns, id: Id) -> EffectiveProtection:  # noqa: A002
    """Return the flag that refuses the removal of an object: its own, or that of its namespace or of an ancestor."""
    record = await request.service.engine.record(ns, id)
    flag = await effective_flag(request.service.reader, record)
    return EffectiveProtection(None if flag is None else FlagView(flag.ns, flag.holder, flag.reason, flag.command))


@api_route(get, "/ns/{ns:str}/protection", Right.READ, TAG, "Get the deletion protection of a namespace")
async def get_namespace_protection(request: ApiRequest, ns: Ns) -> ProtectionView:
    """Return whether the objects of a namespace are protected against removal, and why."""
    return ProtectionView(ns, await namespace_flag(request.service.reader, ns))


@api_route(put, "/ns/{ns:str}/protection", Right.GOVERN, TAG, "Protect a namespace against deletions", 413)
async def set_namespace_protection(request: ApiRequest, ns: Ns, data: JSONBody[NewProtection]) -> ProtectionView:
    """Protect all objects of a namespace against removal, or lift that; the journal says who did it."""
    actor, who = ACTORS[request.grant.role], request.grant.name
    reason = data.reason if data.protected else None
    return ProtectionView(ns, await request.service.engine.protect_namespace(ns, reason, actor=actor, who=who))


@api_route(
    post,
    "/ns/{ns:str}/objects/{id:str}/forget",
    Right.GOVERN,
    TAG,
    "Forget an object of an unknown kind",
    *(404, 409, 413),
    status_code=200,
)
async def forget_object(request: ApiRequest, ns: Ns, id: Id, data: JSONBody[Forget]) -> ObjectView:  # noqa: A002
    """Remove the record of an object whose plug-in is gone; what the object stands for is not touched.

    Only if neither this server nor a live worker knows its kind, and the body confirms the kind. Its operations end as
    cancelled.
    """
    return request.presenter.object(await request.service.engine.forget(ns, id, data.kind, request.grant.name))


ROUTES = (
    list_namespaces,
    list_objects,
    list_all_objects,
    count_objects,
    get_object,
    create_object,
    set_labels,
    forget_object,
    set_protection,
    get_protection,
    get_namespace_protection,
    set_namespace_protection,
)


async def replace_labels(
    tx: Tx, kinds: Kinds, key: Key, labels: dict[str, str], version: int | None, actor: str, who: str
) -> Object:
    """Replace an object's labels in a transaction; raises if the object does not have the required version.

    No action of a lifecycle changes labels, so this is a transaction function of its own.
    """
    record = (await tx.objects([key])).get(key)
    if record is None or record.removed:
        raise NotFound(*key)
    if version is not None and version != record.version:
        raise VersionMismatch(record.id, version, record.version)
    former: dict[str, str] = msgspec.json.decode(record.labels)
    for name in sorted(kinds.of(record).rules.reserved_labels):
        if name in former and labels.get(name) != former[name]:
            raise BadInput("labels", labels, f"labels with {name}={former[name]}, by which its domain finds it")
        if name in labels and name not in former:
            raise BadInput("labels", labels, f"labels without {name}, which only its domain sets")
    text = msgspec.json.encode(keep_flag(record, labels), order="sorted").decode()
    if text == record.labels:
        return record
    changed = replace(record, labels=text, version=record.version + 1)
    entry = JournalEntry(
        record.ns, record.id, record.kind, None, tx.now, actor, who, "labels changed", None, None, None
    )
    await tx.apply(Changes(objects=[changed], journal=[entry]))
    return changed
