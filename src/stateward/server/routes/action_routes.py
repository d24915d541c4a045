"""The routes of actions: on one object, on a group of objects, and a dry run (plan)."""

from litestar import Response, post
from litestar.openapi import ResponseSpec
from litestar.params import JSONBody

from stateward.access import Right
from stateward.access.roles import ACTORS
from stateward.engine import Accepted, LockRequest, Request
from stateward.engine.accept.accept import Verdict
from stateward.errors import BadInput, StatewardError
from stateward.locks.paths import parse_path
from stateward.plugin.request_params import IdempotencyKey, Ns
from stateward.schemas.operations import AcceptedView, GroupView, Prospect
from stateward.schemas.request_bodies import Ask, GroupAsk, Plan
from stateward.server.auth.guards import require_priority
from stateward.server.http.fast_path import REPLAYED, JsonReply
from stateward.server.http.parameters import Action, Id, IfMatch, Wait
from stateward.server.http.preconditions import required_version
from stateward.server.http.problem_details import mask_secrets, problem_of
from stateward.server.routes.declare import api_route
from stateward.server.routes.object_routes import ETAG
from stateward.server.service import ApiRequest
from stateward.store.filters import Selector
from stateward.store.records import Key

TAG = "actions"
EMPTY_BODY = Ask()


@api_route(
    post,
    "/ns/{ns:str}/objects/{id:str}/actions/{action:str}",
    Right.ACT,
    TAG,
    "Do something to an object",
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
    accepted = await service.composite_actions.submit(service.engine, wanted)
    ended = None if wait is None else await _wait_for_end(request, accepted, wait)
    shown, again = ended or accepted, (REPLAYED,) if accepted.again else ()
    status = 202 if ended is None else 200
    return JsonReply(request.presenter.accepted(shown), shown.object.version, *again, status=status)


async def _wait_for_end(request: ApiRequest, accepted: Accepted, seconds: float) -> Accepted | None:
    """Return the accepted request after its operation has ended; None if that takes longer."""
    engine = request.service.engine
    operation = accepted.operation
    if operation is None:
        return accepted
    over = await engine.wait_record_or_none(operation.ns, operation.id, seconds)
    if over is None:
        return None
    found = await engine.store.reader.object(accepted.object.key)
    return Accepted(found or accepted.object, over, accepted.again)


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
        not_before=ask.not_before.timestamp() if ask.not_before else 0.0,
        tree=ask.tree,
        locks=[LockRequest(str(parse_path(one.path, "locks.path")), one.mode) for one in ask.locks],
        wait=ask.wait_for_locks,
    )


@api_route(post, "/ns/{ns:str}/plan", Right.ACT, TAG, "See what would happen", 413, status_code=200)
async def plan(request: ApiRequest, ns: Ns, data: JSONBody[Plan]) -> list[Prospect]:
    """Return the verdict on each request, as if they were submitted one after the other now. Nothing is written."""
    requests = [
        engine_request(request, ns, one.object, one.action, one, field=f"requests[{number}].priority")
        for number, one in enumerate(data.requests)
    ]
    return [prospect_view(verdict) for verdict in await request.service.engine.plan(requests)]


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
    "Do something to many objects",
    *(404, 409, 413, 422),
    status_code=202,
)
async def act_on_group(request: ApiRequest, ns: Ns, action: Action, data: JSONBody[GroupAsk]) -> GroupView:
    """Request an action on all selected objects, in one transaction; objects that do not allow it are skipped.

    With a composite (`whole`), its own action is accepted with them and carried out after they have ended. If the
    composite refuses, or no member allows the action, nothing is written.
    """
    service, ask = request.service, Ask(args=data.args, facts=data.facts, priority=data.priority)
    each = engine_request(request, ns, "", action, ask)
    whole = None if data.whole is None else engine_request(request, ns, data.whole.object, data.whole.action, ask)
    wanted = data.selector
    labels = tuple((wanted.labels or {}).items())
    states = None if wanted.states is None else tuple(wanted.states)
    if states:
        service.engine.kinds.require_states(wanted.kind, states, "selector.states")
    chosen = Selector(ns, wanted.kind, wanted.parent, states, labels, wanted.q)
    verdict = await service.engine.group(whole, chosen, each)
    presenter = request.presenter
    return GroupView(
        None if verdict.whole is None else presenter.accepted(verdict.whole),
        [presenter.accepted(one) for one in verdict.begun],
        {name: mask_secrets(problem_of(why)) for name, why in verdict.skipped.items()},
    )


ROUTES = (act, plan, act_on_group)
