"""The routes `allowed`, `history`, `changes` and `at` of one object: actions, journal, spec changes, past states."""

from collections.abc import Iterator

from litestar import get

from stateward.access import Right
from stateward.access.roles import ACTORS
from stateward.engine import NotFound
from stateward.engine.queries import entries_back, state_at
from stateward.lifecycle import Lifecycle, Move, decide
from stateward.lifecycle.moves import AllowedEvent
from stateward.plugin.request_params import Ns
from stateward.schemas.journal import LinePage, SpecChange
from stateward.schemas.objects import AllowedView, Possible, StateView
from stateward.server.http.parameters import AfterNumber, Id, Limit, Time, last_moment, with_timezone
from stateward.server.routes.declare import api_route
from stateward.server.routes.journal_routes import pruned_after
from stateward.server.service import ApiRequest, Service
from stateward.server.spec_changes import spec_changes
from stateward.store.filters import JournalFilter
from stateward.store.records import JournalEntry, Key, Object

TAG = "objects"


def allowed_actions(lifecycle: Lifecycle, state: str, actor: str, origin: str | None) -> list[Possible]:
    """Return an actor's actions, in table order; `origin` is the state in which the open operation began."""
    if actor not in lifecycle.actors:
        why = f"{lifecycle.kind} knows no {actor}"
        return [Possible(event, False, why, [], None, None, None) for event in lifecycle.actions]
    mine = (move.event for move in lifecycle.every_move() if move.actor == actor)
    events = dict.fromkeys((*lifecycle.actions, *mine))
    return [way for event in events for way in _ways_of_event(lifecycle, state, event, actor, origin)]


def _ways_of_event(lifecycle: Lifecycle, state: str, event: str, actor: str, origin: str | None) -> Iterator[Possible]:
    mine = [allowed for allowed in lifecycle.allowed[state] if allowed.event == event and actor in allowed.actors]
    effective = [allowed for allowed in mine if _is_effective(lifecycle, state, allowed, actor, origin)]
    for allowed in effective:
        why = f"needs {' and '.join(allowed.needs)}" if allowed.needs else None
        desired = None if allowed.desired is None else allowed.desired.word
        yield Possible(event, why is None, why, list(allowed.needs), allowed.target.word, desired, allowed.within)
    if not effective:
        why = str(decide(lifecycle, state, event, actor, origin=origin))
        yield Possible(event, False, why, [], None, None, None)


def _is_effective(lifecycle: Lifecycle, state: str, allowed: AllowedEvent, actor: str, origin: str | None) -> bool:
    """Return whether a row of the table is the one that applies if its facts are given."""
    needs = frozenset(allowed.needs)
    verdict = decide(lifecycle, state, allowed.event, actor, needs, origin)
    return isinstance(verdict, Move) and (verdict.target, verdict.needs) == (allowed.target, needs)


@api_route(get, "/ns/{ns:str}/objects/{id:str}/allowed", Right.READ, TAG, "What may be done to an object?", 404)
async def get_allowed(request: ApiRequest, ns: Ns, id: Id) -> AllowedView:  # noqa: A002
    """Return all actions of the object: whether the caller may request each now, its target states, or why not.

    There are none if this server does not know the object's kind, or only an earlier version of it.
    """
    return await allowed_now(request, await request.service.engine.record(ns, id))


async def allowed_now(request: ApiRequest, record: Object) -> AllowedView:
    """Return all actions of an object, and whether the caller may request each now."""
    service = request.service
    holder = None if record.op is None else await service.reader.operation(Key(record.ns, record.op))
    if service.engine.kinds.unknown_words(record):
        return AllowedView(record.state, None, [])
    lifecycle = service.engine.kinds[record.kind].lifecycle
    origin = None if holder is None else holder.origin
    actions = allowed_actions(lifecycle, record.state, ACTORS[request.grant.role], origin)
    return AllowedView(record.state, service.state_classes.get((record.kind, record.state)), actions)


@api_route(get, "/ns/{ns:str}/objects/{id:str}/history", Right.READ, TAG, "Read an object's history", 404)
async def get_history(request: ApiRequest, ns: Ns, id: Id, after: AfterNumber = 0, limit: Limit = 100) -> LinePage:  # noqa: A002
    """Return a page of the journal of an object, even of a removed one, oldest entry first."""
    service, most = request.service, request.service.page_size(limit)
    entries = await service.reader.journal(after, most, JournalFilter(ns=ns, object=id))
    if not entries:
        await _existing_or_removed(service, Key(ns, id))
    pruned = await pruned_after(service.reader, after)
    upto = entries[-1].seq if entries else after
    return LinePage(request.presenter.entries(entries), str(upto) if len(entries) == most else None, pruned, upto)


@api_route(get, "/ns/{ns:str}/objects/{id:str}/changes", Right.READ, TAG, "Who changed an object's spec?", 404)
async def get_changes(request: ApiRequest, ns: Ns, id: Id, limit: Limit = 100) -> list[SpecChange]:  # noqa: A002
    """Return the changes of the object's spec, newest first: who, when, and each field from and to."""
    service, disclosure = request.service, request.presenter.disclosure
    await _existing_or_removed(service, Key(ns, id))
    changes, most = list[SpecChange](), service.page_size(limit)
    later: tuple[JournalEntry, JournalEntry] | None = None
    async for entry in entries_back(service.reader, Key(ns, id)):
        shown = disclosure.entry(entry)
        if shown is None or entry.spec is None or shown.spec is None:
            continue
        if later is not None:
            changes += spec_changes([(entry, shown), later])
        if len(changes) == most:
            break
        later = entry, shown
    return changes


@api_route(get, "/ns/{ns:str}/objects/{id:str}/at", Right.READ, TAG, "In which state was an object?", 404)
async def get_state_at(request: ApiRequest, ns: Ns, id: Id, time: Time) -> StateView:  # noqa: A002
    """Return the state of an object at a time; it is unknown if the entries of that time were pruned."""
    service = request.service
    record = await _existing_or_removed(service, Key(ns, id))
    past = await state_at(service.reader, record.key, last_moment(time))
    state_class = None if past.state is None else service.state_classes.get((record.kind, past.state))
    return StateView(with_timezone(time), past.state, state_class, past.known)


async def _existing_or_removed(service: Service, key: Key) -> Object:
    """Return an object, even a removed one; raises if it never existed."""
    record = await service.reader.object(key)
    if record is None:
        raise NotFound(*key)
    return record


ROUTES = (get_allowed, get_history, get_changes, get_state_at)
