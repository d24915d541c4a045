"""The routes of previews: what an action on an object, a composite or a group would do; nothing is written."""

from collections.abc import Sequence

from litestar import post
from litestar.params import JSONBody
from msgspec.structs import replace

from stateward.access import Right
from stateward.engine import Accepted, Engine, Request
from stateward.engine.accept.accept import Verdict
from stateward.engine.errors import Denied, NoneAllowed, NotFound, Protected
from stateward.engine.protection import protected_parents
from stateward.errors import StatewardError
from stateward.lifecycle.decide import is_end, undoing_actions
from stateward.plugin.request_params import Ns
from stateward.plugin.runtime import ExpectedChange
from stateward.schemas.preview import PreviewView
from stateward.schemas.problems import Problem
from stateward.schemas.request_bodies import Ask, GroupAsk
from stateward.server.http.parameters import Action, Id, IfMatch
from stateward.server.http.preconditions import required_version
from stateward.server.http.problem_details import mask_secrets, problem, problem_of
from stateward.server.preview_counts import (
    MAX_EXAMPLES,
    TargetOutcome,
    count_places,
    count_refusals,
    count_targets,
    evenly_chosen,
    outcome_of,
    refused_as_missing,
    sample_classes,
)
from stateward.server.routes.action_routes import EMPTY_BODY, TAG, engine_request, group_selector
from stateward.server.routes.declare import api_route
from stateward.server.service import ApiRequest, Service
from stateward.store.filters import Page, Selector
from stateward.store.records import Key, Object

MAX_MEMBERS = 100_000
PLAN_BATCH = 1_000
"""How many requests one transaction plans: it delays the transactions of others."""


@api_route(
    post,
    "/ns/{ns:str}/objects/{id:str}/actions/{action:str}/preview",
    Right.ACT,
    TAG,
    "See what an action would do",
    *(404, 409, 412, 413, 422),
    status_code=200,
)
async def preview_action(
    request: ApiRequest,
    ns: Ns,
    id: Id,  # noqa: A002 - the path's word
    action: Action,
    data: JSONBody[Ask] = EMPTY_BODY,
    if_match: IfMatch = None,
) -> PreviewView:
    """Return what the same request without `/preview` would do: to how many objects, which refuse it, and its effects.

    Nothing is written. An action on a composite, such as an MCI, counts the parts that it would touch.
    """
    service = request.service
    record = await service.engine.record(ns, id)
    version = await required_version(service, record.key, if_match)
    whole = engine_request(request, ns, id, action, data, version=version)
    (verdict,) = await service.engine.plan([whole])
    return await _preview(service, whole, record, verdict)


async def preview_planned(service: Service, request: Request, planned: Accepted) -> PreviewView:
    """Return what a planned request of a domain would do: to its object and the parts of it, or to new parts alone."""
    record = await service.engine.store.reader.object(Key(request.ns, request.object))
    if record is not None and not record.removed:
        return await _preview(service, request, record, planned)
    parts = await _part_outcomes(service, request, planned.object)
    return await _view(service, request, parts, planned)


async def _preview(service: Service, whole: Request, record: Object, verdict: Verdict) -> PreviewView:
    parts = await _part_outcomes(service, whole, record)
    needs_parts = service.composite_actions.needs_parts(whole, record)
    if not parts and not needs_parts:
        alone = [] if isinstance(verdict, StatewardError) else [TargetOutcome(record, outcome_of(verdict))]
        return await _view(service, whole, alone, verdict)
    if needs_parts and not isinstance(verdict, StatewardError):
        verdict = await _group_refusal(service.engine, whole, parts, is_on_whole=True) or verdict
    return await _view(service, whole, parts, verdict, TargetOutcome(record, outcome_of(verdict)))


@api_route(
    post,
    "/ns/{ns:str}/actions/{action:str}/preview",
    Right.ACT,
    TAG,
    "See what an action on many objects would do",
    *(404, 409, 413, 422),
    status_code=200,
)
async def preview_group_action(request: ApiRequest, ns: Ns, action: Action, data: JSONBody[GroupAsk]) -> PreviewView:
    """Return what the same request without `/preview` would do; nothing is written."""
    service, ask = request.service, Ask(args=data.args, facts=data.facts, priority=data.priority)
    each = engine_request(request, ns, "", action, ask)
    chosen = group_selector(request, ns, data)
    engine, actions = service.engine, service.composite_actions
    composites = [] if data.whole is not None else await actions.find_composites(engine, chosen, action)
    others = await actions.without_composites(engine, chosen, composites) if composites else chosen
    members = [] if others is None else await _member_outcomes(engine, others, each)
    for composite in await _plan(engine, composites, each):
        parts = (
            []
            if composite.outcome.is_refused
            else await _part_outcomes(service, replace(each, object=composite.object.id), composite.object)
        )
        members += parts or [composite]
    keys = [Key(str(chosen.ns), id_) for id_ in chosen.ids or ()]
    records = await engine.store.reader.objects(keys) if keys else {}
    missing = [key.id for key in keys if key not in records or records[key].removed]
    if missing and not members:
        raise NotFound(ns, missing[0])
    verdict: Verdict | None = None
    if data.whole is not None:
        whole = engine_request(request, ns, data.whole.object, data.whole.action, ask)
        (verdict,) = await service.engine.plan([whole])
    if not isinstance(verdict, StatewardError):
        verdict = await _group_refusal(engine, each, members, is_on_whole=data.whole is not None) or verdict
    view = await _view(service, each, members, verdict)
    return replace(view, refused=[*view.refused, *refused_as_missing(ns, missing)])


async def _part_outcomes(service: Service, whole: Request, record: Object) -> list[TargetOutcome]:
    """Return the outcome for each part that an action on an object would touch."""
    parts: list[TargetOutcome] = []
    for part_action in await service.composite_actions.find_part_actions(whole, record):
        actor = part_action.actor or whole.actor
        each = Request(
            whole.ns, "", part_action.action, whole.op, actor, whole.who, part_action.facts, priority=whole.priority
        )
        parts += await _member_outcomes(service.engine, part_action.parts, each)
    return parts


async def _group_refusal(
    engine: Engine, each: Request, members: Sequence[TargetOutcome], *, is_on_whole: bool
) -> Verdict | None:
    """Return the error of a group that cannot begin: no member allows it, or a flag protects one of a whole, or all."""
    protected = [member.object.id for member in members if member.outcome.code == Protected.code]
    if protected and (is_on_whole or len(protected) == len(members)):
        (verdict,) = await engine.plan([replace(each, object=protected[0])])
        return verdict
    return NoneAllowed(each.action, {}) if all(member.outcome.is_refused for member in members) else None


async def _member_outcomes(engine: Engine, members: Selector, each: Request) -> list[TargetOutcome]:
    """Return the outcome for each selected object; most have the outcome of a sample of their class."""
    records = await engine.store.reader.list_objects(members, Page(None, MAX_MEMBERS))
    outcomes: list[TargetOutcome] = []
    below = await protected_parents(engine.store.reader, records) if each.action in engine.kinds.removing_events else ()
    for alike in sample_classes(records, below):
        sample = await _plan(engine, evenly_chosen(alike), each)
        if len({target.outcome for target in sample}) == 1:
            outcomes += [TargetOutcome(record, sample[0].outcome) for record in alike]
        else:
            outcomes += sample if len(sample) == len(alike) else await _plan(engine, alike, each)
    return outcomes


async def _plan(engine: Engine, members: Sequence[Object], each: Request) -> list[TargetOutcome]:
    planned: list[TargetOutcome] = []
    for first in range(0, len(members), PLAN_BATCH):
        batch = members[first : first + PLAN_BATCH]
        requests = [replace(each, object=member.id, op=f"{each.op}.{number}") for number, member in enumerate(batch)]
        verdicts = await engine.plan(requests)
        planned += [TargetOutcome(member, outcome_of(verdict)) for member, verdict in zip(batch, verdicts, strict=True)]
    return planned


async def _view(
    service: Service,
    request: Request,
    targets: Sequence[TargetOutcome],
    verdict: Verdict | None,
    composite: TargetOutcome | None = None,
) -> PreviewView:
    """Return the view of planned targets; `verdict` is that on the request itself."""
    error = verdict if isinstance(verdict, StatewardError) else None
    if error is not None and not isinstance(error, Denied):
        raise error  # a mistake of the caller: the action itself is answered likewise
    refused = [target for target in targets if target.outcome.is_refused]
    accepted = [target for target in targets if not target.outcome.is_refused] if error is None else []
    alone = [request.object] if not targets and isinstance(error, Protected) else []
    protected = alone or [target.object.id for target in refused if target.outcome.code == Protected.code]
    kinds = service.engine.kinds
    led = [*accepted, *([] if composite is None or error is not None else [composite])]
    changes = [ExpectedChange(target.object, target.outcome.desired) for target in led]
    return PreviewView(
        action=request.action,
        accepted=error is None,
        problem=None if error is None else _problem(error, refused),
        total=len(accepted),
        targets=count_targets(accepted),
        places=count_places(accepted),
        refused=count_refusals(target for target in refused if target.outcome.code != Protected.code),
        protected=len(protected),
        protected_examples=protected[:MAX_EXAMPLES],
        removes=any(is_end(kinds[kind].lifecycle, desired) for kind, _, desired in _moves(led)),
        undo=_undo(service.engine, led, request.actor),
        within=max((target.outcome.within or 0.0 for target in led), default=0.0) or None,
        effects=await service.composite_actions.describe_effects(request, changes),
    )


def _moves(targets: Sequence[TargetOutcome]) -> set[tuple[str, str, str]]:
    return {(target.object.kind, target.object.state, target.outcome.desired) for target in targets}


def _undo(engine: Engine, targets: Sequence[TargetOutcome], actor: str) -> str | None:
    """Return the action that leads all targets back, the composite included; None if there is none."""
    ways = [
        undoing_actions(engine.kinds[kind].lifecycle, before, after, actor)
        for kind, before, after in sorted(_moves(targets))
    ]
    shared = [action for action in ways[0] if all(action in others for others in ways)] if ways else []
    return shared[0] if shared else None


def _problem(error: StatewardError, refused: Sequence[TargetOutcome]) -> Problem:
    if isinstance(error, NoneAllowed) and refused:  # the view has the reasons of several, in groups
        members = (
            f"all {len(refused):,} members" if len(refused) > 1 else f"the only member: {refused[0].outcome.detail}"
        )
        return problem(409, error.code, f"{error.action!r} is refused by {members}", retry=False)
    return mask_secrets(problem_of(error))


ROUTES = (preview_action, preview_group_action)
