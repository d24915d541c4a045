"""Looking closer at one object: what may be done to it, what was done, and how it was at a time."""

from litestar import get
from msgspec import Struct

from stateward.access import Right
from stateward.access.roles import ACTORS
from stateward.engine import NotFound
from stateward.engine.queries import state_at
from stateward.lifecycle import StateClass
from stateward.server.answers import problems
from stateward.server.auth import needs
from stateward.server.journal import pruned_after
from stateward.server.names import AfterNumber, Id, Limit, Ns, When, aware, end
from stateward.server.possible import Possible, possible
from stateward.server.service import Call, Service
from stateward.server.wire import LinePage, Moment
from stateward.store.filters import JournalFilter
from stateward.store.records import Key, Object

TAGS = ["objects"]


class AllowedView(Struct, frozen=True):
    """What may be done to an object now by the caller, and why the rest may not."""

    state: str
    state_class: StateClass | None
    actions: list[Possible]


class StateView(Struct, frozen=True):
    """The state that an object was in at a time; null if it did not exist, or if that is not `known` any more."""

    time: Moment
    state: str | None
    state_class: StateClass | None
    known: bool


@get(
    "/ns/{ns:str}/objects/{id:str}/allowed",
    guards=[needs(Right.READ)],
    tags=TAGS,
    summary="What may be done to an object?",
    responses=problems(404),
)
async def get_allowed(request: Call, ns: Ns, id: Id) -> AllowedView:  # noqa: A002
    """Return everything that can be asked for: whether the caller may now, where it leads, and if not, why not."""
    service = request.service
    found = await service.engine.get(ns, id)
    holder = None if found.op is None else await service.reader.operation(Key(ns, found.op))
    lifecycle = service.engine.kinds[found.kind].lifecycle
    origin = None if holder is None else holder.origin
    actions = possible(lifecycle, found.state, ACTORS[request.grant.role], origin)
    return AllowedView(found.state, service.classes.get((found.kind, found.state)), actions)


@get(
    "/ns/{ns:str}/objects/{id:str}/history",
    guards=[needs(Right.READ)],
    tags=TAGS,
    summary="Read an object's history",
    responses=problems(404),
)
async def get_history(request: Call, ns: Ns, id: Id, after: AfterNumber = 0, limit: Limit = 100) -> LinePage:  # noqa: A002
    """Return a page of the journal's lines about an object, removed ones included, oldest first."""
    service, most = request.service, request.service.page(limit)
    lines = await service.reader.journal(after, most, JournalFilter(ns=ns, object=id))
    if not lines:
        await _known(service, Key(ns, id))
    pruned = await pruned_after(service.reader, after)
    return LinePage(request.presenter.lines(lines), str(lines[-1].seq) if len(lines) == most else None, pruned)


@get(
    "/ns/{ns:str}/objects/{id:str}/at",
    guards=[needs(Right.READ)],
    tags=TAGS,
    summary="In which state was an object?",
    responses=problems(404),
)
async def get_state_at(request: Call, ns: Ns, id: Id, time: When) -> StateView:  # noqa: A002
    """Return the state that an object was in at a time; what was pruned is not known any more."""
    service = request.service
    found = await _known(service, Key(ns, id))
    past = await state_at(service.reader, found.key, end(time))
    state_class = None if past.state is None else service.classes.get((found.kind, past.state))
    return StateView(aware(time), past.state, state_class, past.known)


async def _known(service: Service, key: Key) -> Object:
    """Return an object, even one that was removed, or raise."""
    found = await service.reader.object(key)
    if found is None:
        raise NotFound(*key)
    return found


ROUTES = (get_allowed, get_history, get_state_at)
