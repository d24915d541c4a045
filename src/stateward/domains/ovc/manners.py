"""What every request of the domain must heed, whatever it is about: the queue that it would stand in."""

import msgspec
from msgspec.structs import replace

from stateward.domains.ovc.denials import OnlyOne, OtherAction, QueueStopping
from stateward.domains.ovc.model import seen_of, short
from stateward.domains.ovc.writing import put_seen
from stateward.engine import Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.store.records import Key, Object, WorkItem

FOUND_BY = frozenset({"name", "account"})
"""The labels by which it is found whether a name is taken."""

STATUS = "status="
"""How the fact begins that tells in which state the caller believes an object to be."""


def heed(uow: UnitOfWork, request: Request, found: Object) -> Object:
    """Refuse what comes too late, or to a queue that takes nothing more; returns the object as it is then."""
    _as_believed(request, found)
    if request.creates is not None:
        _by_its_name(request, found)
        return found
    _in_turn(uow, found)
    return uow.objects[found.key]


def _as_believed(request: Request, found: Object) -> None:
    for fact in request.facts:
        status = fact.removeprefix(STATUS)
        if fact.startswith(STATUS) and status != found.state:
            raise OtherAction(kind=short(found.kind), id=found.id, state=found.state, status=status)


def _by_its_name(request: Request, found: Object) -> None:
    """Refuse an object that is not labelled with its name, by which others find that it is taken."""
    name = msgspec.json.decode(request.spec or "{}").get("name")
    if msgspec.json.decode(found.labels).get("name") != name:
        raise BadInput("labels", found.labels, f"the label name={name}, as its spec says")


def _in_turn(uow: UnitOfWork, found: Object) -> None:
    """Look at the queue: one that is being stopped takes nothing, and one request waits behind a migration."""
    host = uow.objects[Key(found.ns, found.queue)]
    line = uow.queue(host.key)
    seen = seen_of(host)
    if seen.closing and line:
        raise QueueStopping(kind=short(host.kind), id=host.id)
    if seen.closing:
        put_seen(uow, host, replace(seen, closing=False))
    waiting = [work for work in line if not _is_hidden(uow, work)]
    if waiting and _is_hidden(uow, line[0]):
        raise OnlyOne(kind=short(host.kind), id=host.id, op=waiting[0].op)


def _is_hidden(uow: UnitOfWork, work: WorkItem) -> bool:
    operation = uow.operations.get(work.key)
    return operation is not None and operation.hidden
