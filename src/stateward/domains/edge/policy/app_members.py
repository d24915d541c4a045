"""The members of an app: its instances, kept in the app's status, so that policy limits hold exactly.

A transaction that adds or removes an instance locks the app's row. An instance being deleted still counts against the
maximum, and no longer towards the minimum. It leaves the members when it is gone.
"""

from msgspec import json
from msgspec.structs import replace

from stateward.domains.edge.errors import LimitReached
from stateward.domains.edge.lifecycle import AUTOPROV
from stateward.domains.edge.lookups import DELETING_STATES, NOT_PRESENT, find_object, save_status
from stateward.domains.edge.model import AppSpec, AppStatus, AutoprovSpec, read_spec, record_id
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.records import Object


def app_status(app: Object) -> AppStatus:
    """Read an app's status."""
    return json.decode(app.seen, type=AppStatus)


async def find_policy(uow: UnitOfWork, ns: str, app: AppSpec) -> AutoprovSpec | None:
    """Return the auto-provisioning policy of an app, if it has one."""
    if not app.autoprov:
        return None
    policy = await find_object(uow, ns, record_id(AUTOPROV.kind, app.autoprov), AUTOPROV.kind)
    return None if policy is None else read_spec(policy, AutoprovSpec)


def add_member(uow: UnitOfWork, app: Object, member: str, policy: AutoprovSpec | None) -> None:
    """Add an instance; raises `LimitReached` at the policy's maximum."""
    status = app_status(app)
    others = tuple(other for other in status.members if other != member)
    if policy is not None and len(others) >= policy.max:
        raise LimitReached(f"app {app.id}", "at most", policy.max)
    gone = tuple(other for other in status.leaving if other != member)
    save_status(uow, app, replace(status, members=(*others, member), leaving=gone))


def mark_leaving(uow: UnitOfWork, app: Object, member: str, policy: AutoprovSpec | None) -> None:
    """Mark an instance as being deleted; raises `LimitReached` at the policy's minimum."""
    status = app_status(app)
    staying = [other for other in status.members if other not in status.leaving and other != member]
    if policy is not None and len(staying) < policy.min:
        raise LimitReached(f"app {app.id}", "at least", policy.min)
    save_status(uow, app, replace(status, leaving=tuple(dict.fromkeys((*status.leaving, member)))))


def refresh_member(status: AppStatus, member: str, state: str | None) -> AppStatus:
    """Return an app's status, updated by the state of an instance (None: it does not exist)."""
    if state is None or state == NOT_PRESENT:
        members = tuple(other for other in status.members if other != member)
        return replace(status, members=members, leaving=tuple(other for other in status.leaving if other != member))
    if state not in DELETING_STATES and member in status.leaving:
        return replace(status, leaving=tuple(other for other in status.leaving if other != member))
    return status
