"""The routes `allowed`, `history`, `changes` and `at` of one object: actions, journal, spec changes, past states."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from litestar import get

from stateward.access import Right
from stateward.access.roles import ACTORS
from stateward.engine import NotFound
from stateward.engine.queries import entries_back, state_at
from stateward.engine.typed_values import MASK
from stateward.lifecycle import Lifecycle, Move, decide
from stateward.lifecycle.moves import AllowedEvent
from stateward.plugin.request_params import Ns
from stateward.schemas.journal import FieldChange, LinePage, SpecChange
from stateward.schemas.objects import AllowedView, Possible, StateView
from stateward.server.http.parameters import AfterNumber, Id, Limit, Time, last_moment, with_timezone
from stateward.server.routes.declare import api_route
from stateward.server.routes.journal_routes import pruned_after
from stateward.server.service import ApiRequest, Service
from stateward.server.views import to_datetime
from stateward.store.filters import JournalFilter
from stateward.store.records import JournalEntry, Key, Object

# Changes of an object's spec, field by field, from its journal entries.
#
# Each entry that changed the spec has the whole new one. Values are shown as their reader may see them. A secret is
# shown as its mask, before and after; that it differs is told, but not how.

_NOTHING = object()
Leaves = dict[str, Any]


def spec_changes(entries: Iterable[tuple[JournalEntry, JournalEntry]]) -> Iterator[SpecChange]:
    """Yield what changed with each entry that has a spec; each comes as it is stored, and as its reader may see it.

    The first spec is no change.
    """
    before: tuple[Leaves, Leaves] | None = None
    for stored, shown in entries:
        if stored.spec is None or shown.spec is None:
            continue
        after = _leaves(msgspec.json.decode(stored.spec)), _leaves(msgspec.json.decode(shown.spec))
        fields = [] if before is None else list(_differences(before, after))
        before = after
        if fields:
            yield SpecChange(shown.seq, to_datetime(shown.at), shown.actor, shown.who, shown.event, shown.op, fields)


def _differences(before: tuple[Leaves, Leaves], after: tuple[Leaves, Leaves]) -> Iterator[FieldChange]:
    """Yield the fields whose values differ, in their order; `before` and `after` are stored and shown values."""
    for field in dict.fromkeys((*before[1], *after[1])):
        old, new = before[1].get(field, _NOTHING), after[1].get(field, _NOTHING)
        is_hidden_change = old == new == MASK and before[0].get(field) != after[0].get(field)
        if old == new and not is_hidden_change:
            continue
        how = "added" if old is _NOTHING else "removed" if new is _NOTHING else "changed"
        yield FieldChange(field, how, None if old is _NOTHING else old, None if new is _NOTHING else new)


def _leaves(value: Any, path: str = "") -> Leaves:  # noqa: ANN401 - plain JSON
    """Return the values of a spec by their paths; an empty list or object is a value of its own."""
    if isinstance(value, dict) and value:
        inner = ((f"{path}.{name}" if path else name, part) for name, part in value.items() if name != "$version")
    elif isinstance(value, list) and value:
        inner = ((f"{path}[{number}]", part) for number, part in enumerate(value))
    else:
        return {path: value}
    return {name: leaf for place, part in inner for name, leaf in _leaves(part, place).items()}


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
