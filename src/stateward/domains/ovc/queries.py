"""Lookups of objects in a unit of work, for guards: they raise what the caller is answered with."""

import msgspec

from stateward.domains.ovc.errors import NameTaken, ParentNotReady
from stateward.domains.ovc.model import short_kind
from stateward.engine import NotFound
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import Lifecycle, State
from stateward.store.filters import Selector
from stateward.store.records import Key, Object

NAMELESS_STATES = ("DESTROYED", "DECOMMISSIONED")
"""The states in which an object's name is free again."""


def require_object(uow: UnitOfWork, ns: str, id_: str, lifecycle: Lifecycle) -> Object:
    """Return a loaded object of this kind; raises NotFound."""
    found = uow.objects.get(Key(ns, id_))
    if found is None or found.removed or found.kind != lifecycle.kind:
        raise NotFound(ns, id_)
    return found


def require_state(uow: UnitOfWork, ns: str, id_: str, lifecycle: Lifecycle, *wanted: State) -> Object:
    """Return a loaded object in one of these states; raises ParentNotReady."""
    found = require_object(uow, ns, id_, lifecycle)
    if found.state not in wanted:
        raise ParentNotReady(kind=short_kind(found.kind), id=id_, state=found.state, wanted=" or ".join(wanted))
    return found


async def require_free_name(uow: UnitOfWork, ns: str, lifecycle: Lifecycle, name: str, **where: str) -> None:
    """Raise NameTaken if a name is in use: below a `parent`, in an `account`, or in the namespace.

    The caller has locked the parent or the account; the names of the namespace are locked here.
    """
    if not where:
        await uow.tx.locks([Key(ns, f"names of {lifecycle.kind}")])
    labels = {"name": name, **{key: value for key, value in where.items() if key != "parent"}}
    chosen = Selector(ns, lifecycle.kind, where.get("parent"), labels=tuple(labels.items()))
    stored = {one.key: one for one in await uow.tx.select(chosen)}
    here = {key: one for key, one in uow.objects.items() if _matches(one, chosen)}
    for one in ({**stored, **here}).values():
        if one.state not in NAMELESS_STATES and not one.removed:
            raise NameTaken(name=name, kind=short_kind(one.kind), id=one.id, state=one.state)


def _matches(one: Object, chosen: Selector) -> bool:
    if (one.ns, one.kind) != (chosen.ns, chosen.kind) or chosen.parent not in (None, one.parent):
        return False
    labels = msgspec.json.decode(one.labels)
    return all(labels.get(name) == value for name, value in chosen.labels)
