"""The instances of an app, kept with the app: so that its policy's limits hold exactly, whatever races.

Whoever adds or removes an instance has the app's row. One that is on its way out still counts against the most there
may be, and no longer towards the least there must be; it is struck off when it is really gone.
"""

from msgspec import json
from msgspec.structs import replace

from stateward.domains.edge.errors import LimitReached
from stateward.domains.edge.lookups import DELETING_STATES, NOT_PRESENT
from stateward.domains.edge.model import AppStatus, AutoprovSpec
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.records import Object, to_json


def app_status(app: Object) -> AppStatus:
    """Read what is kept of an app."""
    return json.decode(app.seen, type=AppStatus)


def add_member(uow: UnitOfWork, app: Object, member: str, policy: AutoprovSpec | None) -> None:
    """Add an instance, unless there are as many as there may be."""
    status = app_status(app)
    others = tuple(one for one in status.members if one != member)
    if policy is not None and len(others) >= policy.max:
        raise LimitReached(f"app {app.id}", "at most", policy.max)
    gone = tuple(one for one in status.leaving if one != member)
    save_app_status(uow, app, replace(status, members=(*others, member), leaving=gone))


def mark_leaving(uow: UnitOfWork, app: Object, member: str, policy: AutoprovSpec | None) -> None:
    """Note that an instance goes, unless there are as few as there must be."""
    status = app_status(app)
    staying = [one for one in status.members if one not in status.leaving and one != member]
    if policy is not None and len(staying) < policy.min:
        raise LimitReached(f"app {app.id}", "at least", policy.min)
    save_app_status(uow, app, replace(status, leaving=tuple(dict.fromkeys((*status.leaving, member)))))


def refresh_member(status: AppStatus, member: str, state: str | None) -> AppStatus:
    """Return what is kept of an app once the state of an instance is known (None: there is none)."""
    if state is None or state == NOT_PRESENT:
        members = tuple(one for one in status.members if one != member)
        return replace(status, members=members, leaving=tuple(one for one in status.leaving if one != member))
    if state not in DELETING_STATES and member in status.leaving:
        return replace(status, leaving=tuple(one for one in status.leaving if one != member))
    return status


def save_app_status(uow: UnitOfWork, app: Object, status: AppStatus) -> None:
    """Write what is kept of an app."""
    seen = to_json(status)
    if seen != app.seen:
        uow.save_object(app.key, replace(app, seen=seen, version=uow.next_version(app.key)))
