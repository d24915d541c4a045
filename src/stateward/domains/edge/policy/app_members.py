"""The instances of an app, kept with the app: so that its policy's limits hold exactly, whatever races.

Whoever adds or removes an instance has the app's row. One that is on its way out still counts against the most there
may be, and no longer towards the least there must be; it is struck off when it is really gone.
"""

from msgspec import json
from msgspec.structs import replace

from stateward.domains.edge.errors import LimitReached
from stateward.domains.edge.lookups import GOING, NOT_PRESENT
from stateward.domains.edge.model import AppStatus, AutoprovSpec, text_of
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.records import Object


def app_marks(app: Object) -> AppStatus:
    """Read what is kept of an app."""
    return json.decode(app.seen, type=AppStatus)


def joined(uow: UnitOfWork, app: Object, member: str, policy: AutoprovSpec | None) -> None:
    """Add an instance, unless there are as many as there may be."""
    marks = app_marks(app)
    others = tuple(one for one in marks.members if one != member)
    if policy is not None and len(others) >= policy.max:
        raise LimitReached(f"app {app.id}", "at most", policy.max)
    gone = tuple(one for one in marks.leaving if one != member)
    put_marks(uow, app, replace(marks, members=(*others, member), leaving=gone))


def leaving(uow: UnitOfWork, app: Object, member: str, policy: AutoprovSpec | None) -> None:
    """Note that an instance goes, unless there are as few as there must be."""
    marks = app_marks(app)
    staying = [one for one in marks.members if one not in marks.leaving and one != member]
    if policy is not None and len(staying) < policy.min:
        raise LimitReached(f"app {app.id}", "at least", policy.min)
    put_marks(uow, app, replace(marks, leaving=tuple(dict.fromkeys((*marks.leaving, member)))))


def reviewed(marks: AppStatus, member: str, state: str | None) -> AppStatus:
    """Return what is kept of an app once the state of an instance is known (None: there is none)."""
    if state is None or state == NOT_PRESENT:
        members = tuple(one for one in marks.members if one != member)
        return replace(marks, members=members, leaving=tuple(one for one in marks.leaving if one != member))
    if state not in GOING and member in marks.leaving:
        return replace(marks, leaving=tuple(one for one in marks.leaving if one != member))
    return marks


def put_marks(uow: UnitOfWork, app: Object, marks: AppStatus) -> None:
    """Write what is kept of an app."""
    seen = text_of(marks)
    if seen != app.seen:
        uow.save_object(app.key, replace(app, seen=seen, version=uow.next_version(app.key)))
