"""The routes of objects: namespaces, list, get, create, labels."""

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
from stateward.engine.kinds import Kind, Kinds
from stateward.errors import BadInput, UnknownName
from stateward.lifecycle import Lifecycle
from stateward.plugin.request_params import IdempotencyKey, Ns
from stateward.schemas.objects import NamespaceView, ObjectPage, ObjectView
from stateward.schemas.operations import AcceptedView
from stateward.schemas.request_bodies import Forget, NewLabels, NewObject
from stateward.server.auth.guards import require_priority
from stateward.server.errors import Forbidden
from stateward.server.http.fast_path import JsonReply
from stateward.server.http.parameters import (
    AfterText,
    Id,
    IfMatch,
    IfNoneMatch,
    LabelFilter,
    Limit,
    StateFilter,
    TextFilter,
)
from stateward.server.http.preconditions import is_unchanged, required_version
from stateward.server.routes.declare import api_route
from stateward.server.routes.kind_routes import public_kind
from stateward.server.service import ApiRequest, Service
from stateward.store.changes import Changes
from stateward.store.filters import Page, Selector
from stateward.store.port import Tx
from stateward.store.records import JournalEntry, Key, Object

TAG = "objects"
ETAG = ResponseHeader(name="ETag", description="the object's version", documentation_only=True)


@api_route(get, "/namespaces", Right.READ, TAG, "List the namespaces")
async def list_namespaces(request: ApiRequest) -> list[NamespaceView]:
    """Return the namespaces of the token that have objects, with counts by kind and state."""
    found = [await _count_objects(request.service, ns) for ns in await readable_namespaces(request)]
    return [one for one in found if one.counts]


async def readable_namespaces(request: ApiRequest) -> list[str]:
    """Return the namespaces of the caller's token."""
    if ANY not in request.grant.namespaces:
        return sorted(request.grant.namespaces)
    return [ns for ns in await request.service.reader.namespaces() if ns != SYSTEM]


async def _count_objects(service: Service, ns: str) -> NamespaceView:
    counts: dict[str, dict[str, int]] = {}
    for (kind, state), count in sorted((await service.reader.count_states(Selector(ns))).items()):
        counts.setdefault(kind, {})[state] = count
    return NamespaceView(ns, counts)


@api_route(get, "/ns/{ns:str}/objects", Right.READ, TAG, "List objects")
async def list_objects(
    request: ApiRequest,
    ns: Ns,
    kind: TextFilter = None,
    states: StateFilter = None,
    parent: TextFilter = None,
    labels: LabelFilter = None,
    q: TextFilter = None,
    after: AfterText = None,
    limit: Limit = 100,
) -> ObjectPage:
    """Return a page of the matching objects, in the order of their ids; every page costs the same.

    `state` may name several states, with commas between them; `q` is a part of the id, case-insensitive.
    """
    wishes = tuple((name, value) for name, _, value in (one.partition("=") for one in labels or ()))
    named = None if states is None else tuple(filter(None, states.split(",")))
    if named is not None:
        request.service.engine.kinds.require_states(kind, named)
    chosen = Selector(ns, kind, parent, named, wishes, q)
    most = request.service.page_size(limit)
    found = await request.service.reader.list_objects(chosen, Page(after, most))
    presenter = request.presenter
    items = [presenter.object(one) for one in found]
    return ObjectPage(items, items[-1].id if len(items) == most else None)


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
    found = await service.engine.record(ns, id)
    if is_unchanged(if_none_match, found.version):
        return JsonReply(None, found.version, status=304)
    return JsonReply(request.presenter.object(found), found.version)


@api_route(
    post,
    "/ns/{ns:str}/objects",
    Right.ACT,
    TAG,
    "Make an object",
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
    lifecycle = _creatable_lifecycle(engine, data.kind)
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
        not_before=data.not_before.timestamp() if data.not_before else 0.0,
        actor=ACTORS[request.grant.role],
        who=request.grant.name,
        key=request.grant.own_key(key),
    )
    return JsonReply(request.presenter.accepted(accepted), accepted.object.version, status=202)


def _creatable_lifecycle(engine: Engine, kind: str) -> Lifecycle:
    """Return the lifecycle of a kind; raises unless the kind allows creation over the generic API."""
    try:
        found = public_kind(engine, kind)
    except UnknownName as error:
        raise BadInput("kind", kind, f"one of {', '.join(sorted(error.known))}") from error
    if not found.general:
        raise Forbidden(Right.ACT, why=_made_elsewhere(found))
    return found.lifecycle


def _made_elsewhere(kind: Kind) -> str:
    maker = kind.made_by or f"their domain (/api/v1/{kind.name.partition('.')[0]})"
    return f"objects of kind {kind.name} are made by {maker}, not over the general API"


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
    found = await engine.store.transact(
        lambda tx: replace_labels(tx, engine.kinds, Key(ns, id), data.labels, version, actor, who)
    )
    return JsonReply(request.presenter.object(found), found.version)


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


ROUTES = (list_namespaces, list_objects, get_object, create_object, set_labels, forget_object)


async def replace_labels(
    tx: Tx, kinds: Kinds, key: Key, labels: dict[str, str], version: int | None, actor: str, who: str
) -> Object:
    """Replace an object's labels in a transaction; raises if the object does not have the required version.

    No action of a lifecycle changes labels, so this is a transaction function of its own.
    """
    found = (await tx.objects([key])).get(key)
    if found is None or found.removed:
        raise NotFound(*key)
    if version is not None and version != found.version:
        raise VersionMismatch(found.id, version, found.version)
    _check_reserved_labels(kinds, found, labels)
    text = msgspec.json.encode(labels, order="sorted").decode()
    if text == found.labels:
        return found
    changed = replace(found, labels=text, version=found.version + 1)
    entry = JournalEntry(found.ns, found.id, found.kind, None, tx.now, actor, who, "labels changed", None, None, None)
    await tx.apply(Changes(objects=[changed], journal=[entry]))
    return changed


def _check_reserved_labels(kinds: Kinds, found: Object, labels: dict[str, str]) -> None:
    """Raise if a label is removed or changed by which the domain finds the object."""
    former: dict[str, str] = msgspec.json.decode(found.labels)
    for name in sorted(former.keys() & kinds.of(found).reserved_labels):
        if labels.get(name) != former[name]:
            raise BadInput("labels", labels, f"labels with {name}={former[name]}, by which its domain finds it")
