"""The routes of actions: on one object, on a group of objects, and a dry run (plan)."""

import re

from litestar import Response, post
from litestar.openapi import ResponseSpec
from litestar.params import JSONBody

from stateward.access import Right
from stateward.access.roles import ACTORS
from stateward.engine import Accepted, LockRequest, Request
from stateward.engine.accept.accept import Verdict
from stateward.engine.errors import NoneAllowed
from stateward.engine.requests import Creation
from stateward.errors import BadInput, StatewardError
from stateward.locks.paths import parse_path
from stateward.naming import NAME
from stateward.plugin.request_params import IdempotencyKey, Ns
from stateward.schemas.operations import AcceptedView, GroupView, Prospect
from stateward.schemas.request_bodies import Ask, GroupAsk, Plan, Planned
from stateward.server.auth.guards import require_priority
from stateward.server.http.fast_path import JsonReply
from stateward.server.http.parameters import Action, Id, IfMatch, Wait
from stateward.server.http.preconditions import required_version
from stateward.server.http.problem_details import mask_secrets, problem_of
from stateward.server.routes.declare import api_route
from stateward.server.routes.object_routes import ETAG, creatable_lifecycle, require_known_labels, start_time
from stateward.server.service import ApiRequest
from stateward.store.filters import Selector
from stateward.store.records import Key, to_json
from stateward.validation_texts import PATTERN_MEANINGS

TAG = "actions"
EMPTY_BODY = Ask()


@api_route(
    post,
    "/ns/{ns:str}/objects/{id:str}/actions/{action:str}",
    Right.ACT,
    TAG,
    "Run an action on an object",
    *(404, 409, 412, 413, 422),
    status_code=202,
    response_headers=[ETAG],
    responses={200: ResponseSpec(AcceptedView, False, "It has ended.")},
)
async def act(
    request: ApiRequest,
    ns: Ns,
    id: Id,  # noqa: A002 - the path's word
    action: Action,
    data: JSONBody[Ask] = EMPTY_BODY,
    wait: Wait = None,
    key: IdempotencyKey = None,
    if_match: IfMatch = None,
) -> Response[AcceptedView]:
    """Request an action. It is accepted (202) and carried out, or refused with the reason.

    An action on a composite, such as an MCI, is an action on all of its parts that allow it. With `wait`, the response
    comes when the operation has ended (200), or after so many seconds with its status at that time (202).
    """
    service = request.service
    version = None if if_match is None else await required_version(service, Key(ns, id), if_match)
    wanted = engine_request(request, ns, id, action, data, version=version, key=request.grant.own_key(key))
    await _require_own_tree(request, ns, id, data)
    accepted = await service.composite_actions.submit(service.engine, wanted)
    ended = None if wait is None else await _wait_for_end(request, accepted, wait)
    shown, status = ended or accepted, 202 if ended is None else 200
    return JsonReply(request.presenter.accepted(shown), shown.object.version, status=status)


async def _require_own_tree(request: ApiRequest, ns: str, id_: str, ask: Ask) -> None:
    """Refuse locks on the tree of another object: nobody blocks what isn't part of it through an unrelated one.

    The parent of an object never changes, so that it can be read before the request is decided.
    """
    if ask.tree in (None, id_):
        return
    records = await request.service.engine.store.reader.objects([Key(ns, id_), Key(ns, ask.tree)])
    tree, own = records.get(Key(ns, ask.tree)), records.get(Key(ns, id_))
    if tree is not None and not tree.removed and (own is None or own.parent != tree.id):
        raise BadInput("tree", ask.tree, f"{id_!r}, the object that {id_!r} is part of, or a tree that is no object")


async def _wait_for_end(request: ApiRequest, accepted: Accepted, seconds: float) -> Accepted | None:
    """Return the accepted request after its operation has ended; None if that takes longer."""
    engine = request.service.engine
    operation = accepted.operation
    if operation is None:
        return accepted
    over = await engine.wait_record_or_none(operation.ns, operation.id, seconds)
    if over is None:
        return None
    record = await engine.store.reader.object(accepted.object.key)
    return Accepted(record or accepted.object, over, accepted.again)


def engine_request(
    request: ApiRequest,
    ns: str,
    object_: str,
    action: str,
    ask: Ask,
    *,
    version: int | None = None,
    key: str | None = None,
    field: str = "priority",
    creates: Creation | None = None,
) -> Request:
    """Return the engine's request for a caller's request; `field` is the place of the priority in the body."""
    require_priority(request.grant, ask.priority, field)
    if ask.locks and ask.tree is None:
        raise BadInput("tree", None, "given: locks are locks on a tree")
    return request.service.engine.request(
        ns,
        object_,
        action,
        actor=ACTORS[request.grant.role],
        who=request.grant.name,
        facts=ask.facts,
        args=ask.args,
        spec=ask.spec,
        key=key,
        version=version,
        priority=ask.priority,
        not_before=start_time(ask.not_before),
        tree=ask.tree,
        locks=[LockRequest(str(parse_path(lock.path, "locks.path")), lock.mode) for lock in ask.locks],
        wait=ask.wait_for_locks,
        creates=creates,
    )


@api_route(post, "/ns/{ns:str}/plan", Right.ACT, TAG, "See what would happen", 413, status_code=200)
async def plan(request: ApiRequest, ns: Ns, data: JSONBody[Plan]) -> list[Prospect]:
    """Return the verdict on each request, as if they were submitted one after the other now. Nothing is written.

    A request with a `kind` is one that would create the object.
    """
    requests = [
        engine_request(
            request,
            ns,
            ask.object,
            ask.action,
            ask,
            field=f"requests[{number}].priority",
            creates=_planned_creation(request, ask),
        )
        for number, ask in enumerate(data.requests)
    ]
    return [prospect_view(verdict) for verdict in await request.service.engine.plan(requests)]


def _planned_creation(request: ApiRequest, planned: Planned) -> Creation | None:
    if planned.kind is None:
        return None
    creatable_lifecycle(request.service.engine, planned.kind).creating_action(planned.action)
    if re.match(NAME, planned.object) is None:
        raise BadInput("id", planned.object, PATTERN_MEANINGS[NAME])
    return Creation(planned.kind, planned.parent, to_json(planned.labels or {}), None)


def prospect_view(verdict: Verdict) -> Prospect:
    """Return the view of a verdict."""
    if isinstance(verdict, StatewardError):
        problem = mask_secrets(problem_of(verdict))
        return Prospect("deny", problem.state, problem)
    return Prospect("accept", verdict.object.state)


@api_route(
    post,
    "/ns/{ns:str}/actions/{action:str}",
    Right.ACT,
    TAG,
    "Run an action on many objects",
    *(404, 409, 413, 422),
    status_code=202,
)
async def act_on_group(
    request: ApiRequest, ns: Ns, action: Action, data: JSONBody[GroupAsk], key: IdempotencyKey = None
) -> GroupView:
    """Request an action on all selected objects, in one transaction; objects that do not allow it are skipped.

    An action on a composite, such as an MCI, is an action on all of its parts that allow it. Each composite then has a
    transaction and an operation of its own, and `group` is null if there are several.
    With a composite (`whole`), its own action is accepted with them and carried out after they have ended. If the
    composite refuses, or no member allows the action, nothing is written. A request that is repeated under its
    idempotency key does nothing; its response lists no members.
    """
    service, ask = request.service, Ask(args=data.args, facts=data.facts, priority=data.priority)
    own = request.grant.own_key(key)
    each = engine_request(request, ns, "", action, ask, key=own)
    whole = (
        None if data.whole is None else engine_request(request, ns, data.whole.object, data.whole.action, ask, key=own)
    )
    chosen = group_selector(request, ns, data)
    try:
        verdict = await service.composite_actions.submit_group(service.engine, whole, chosen, each)
    except NoneAllowed as error:
        if not error.skipped:
            await require_known_labels(request, chosen, "selector.labels")
        raise
    presenter = request.presenter
    return GroupView(
        None if verdict.whole is None else presenter.accepted(verdict.whole),
        [presenter.accepted(accepted) for accepted in verdict.begun],
        {name: mask_secrets(problem_of(why)) for name, why in verdict.skipped.items()},
        verdict.group,
    )


def group_selector(request: ApiRequest, ns: str, ask: GroupAsk) -> Selector:
    """Return the selector of a group action."""
    wanted = ask.selector
    if (wanted is None) == (ask.objects is None):
        raise BadInput("selector", None, "given, unless objects are; not both")
    if wanted is None:
        return Selector(ns, ids=tuple(ask.objects or ()))
    if not any((wanted.kind, wanted.parent, wanted.states, wanted.labels, wanted.q)):
        conditions = "kind, parent, states, labels, q"
        raise BadInput("selector", None, f"given at least one of {conditions}: an empty one would mean all objects")
    states = None if wanted.states is None else tuple(wanted.states)
    if states:
        request.service.engine.kinds.require_states(wanted.kind, states, "selector.states")
    return Selector(ns, wanted.kind, wanted.parent, states, tuple((wanted.labels or {}).items()), wanted.q)


ROUTES = (act, plan, act_on_group)
