"""The guards of the domain, inside the accepting transaction.

A deploy, a teardown or a delete without its lock is refused, whichever API it came from. A deploy is accepted only
while its system lives: the transaction locks the system's row, so no deletion can come in between. A change that would
remove a protected part is refused, and fails if the part was protected while the change waited for its lock. A timer
limits how long it waits. A deploy claims the ports of its addresses.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from stateward.access.quotas import quota_key
from stateward.domains.systems.address_choice import AllowedPorts, assign_ports
from stateward.domains.systems.addresses import address_keys, hold_addresses
from stateward.domains.systems.change_planner import leaving_parts
from stateward.domains.systems.errors import (
    BackendNotGranted,
    LockHeld,
    LockMissing,
    LoginNotGranted,
    NotLiving,
    SecretMissing,
)
from stateward.domains.systems.instance_limits import check_instances, usage_keys
from stateward.domains.systems.lifecycle import JOB, LIVING, NODEPOOL, SECRET, SERVICE, SYSTEM
from stateward.domains.systems.model import ChangeSeen, ChangeSpec, DesiredTree, SystemSpec
from stateward.domains.systems.object_ids import job_id, pool_id, secret_id, secret_name, service_id, system_of
from stateward.domains.systems.settings import SystemsSettings
from stateward.engine import LockRequest, NotFound, Request
from stateward.engine.kind_types import require_known_fields
from stateward.engine.protection import require_no_flag, require_no_flag_in
from stateward.engine.requests import REASON
from stateward.engine.unit_of_work import UnitOfWork
from stateward.locks.modes import Mode
from stateward.locks.paths import ROOT, parse_path
from stateward.store.changes import Ended
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, Operation, Timer, to_json

CHANGES = ("deploy", "teardown")
WAIT = "wait"
"""The argument with the seconds to wait for the lock."""
FORCE = "force"
"""The argument of a deletion that cancels the open deploys of its system."""
TEARDOWN_CHANGE = ChangeSpec("/", DesiredTree({}, {}))
"""A teardown, as a deploy of nothing."""


def check_host(settings: SystemsSettings, ns: str, system: Object | None, spec: str | None = None) -> None:
    """Refuse a backend that runs programs to a namespace without the grant; `spec` is that of a new system."""
    text = spec if spec is not None else "{}" if system is None else system.spec
    wanted = msgspec.json.decode(text or "{}", type=SystemSpec)
    if not settings.may_use(wanted.backend, ns):
        raise BackendNotGranted(ns, wanted.backend)


def exclusive_lock(path: str) -> tuple[LockRequest, ...]:
    """Return the lock that a change of a path needs; it implies intention locks on the ancestors."""
    return (LockRequest(path, Mode.X.value),)


def lock_system(request: Request, record: Object | None) -> Iterable[Key]:  # noqa: ARG001 - the company of a guard
    """Return the system of a deploy or a teardown, for the lock set of the transaction, its secrets and addresses.

    Instances are counted under the lock of the quota.
    """
    system = system_of(request.object)
    counted = [quota_key(request.ns), *usage_keys(request.ns, system)] if request.action == "deploy" else []
    return [Key(request.ns, system), *counted, *_shared_keys(request)]


def _shared_keys(request: Request) -> list[Key]:
    """Return the secrets and the addresses that a deploy refers to.

    Few deploys have some, and large definitions take long to decode.
    """
    text = request.spec or ""
    if request.action != "deploy" or not ('"secrets"' in text or '"address"' in text):
        return []
    try:
        change = msgspec.json.decode(text, type=ChangeSpec)
    except msgspec.ValidationError:
        return []  # the guard refuses it
    return [*_secret_keys(request.ns, change), *address_keys(change)]


def _secret_keys(ns: str, change: ChangeSpec) -> list[Key]:
    return [Key(ns, secret_id(name)) for name in sorted(change.picture.secrets())]


async def guard_change(
    settings: SystemsSettings, ports: AllowedPorts, uow: UnitOfWork, request: Request, record: Object
) -> Request | None:
    """Accept a deploy or a teardown only with its lock, and only of a living system; note who cancels a deploy."""
    if request.action == "cancel" and request.seen is None:
        return replace(request, seen=to_json(ChangeSeen(cancelled=request.who or str(request.actor))))
    if request.action == GAVE_UP:
        _require_waiting(uow, record)
    if request.action not in CHANGES:
        return None
    system, change = system_of(record.id), TEARDOWN_CHANGE
    if request.action == "deploy":
        try:
            change = msgspec.json.decode(request.spec or "{}", type=ChangeSpec)
        except msgspec.ValidationError:
            raise LockMissing(system, request.action) from None
    if request.tree != system or request.locks != exclusive_lock(change.path):
        raise LockMissing(system, request.action)
    living = _require_living(uow, Key(record.ns, system))
    if request.action == "deploy":
        check_host(settings, record.ns, living)
        ports.check(change.picture)
        _check_secrets(uow, record.ns, change)
        check_logins(settings, record.ns, change.picture)
    await require_no_protected_part(uow, request.action, living.key, change)
    if request.action == "deploy":  # the last checks, because they write
        await check_instances(settings, uow, living.key, record.id, change.path, change.picture)
        change = await assign_ports(uow, living, change, ports)
        await hold_addresses(uow, living, record.id, request.who, change, DesiredTree())
        if change.picture.assigned_ports:
            request = replace(request, spec=to_json(change))
    if request.wait:
        seconds = float(msgspec.json.decode(request.args).get(WAIT, 0.0))
        id_, due = lock_timer_id(record.id), uow.now + seconds
        reason = to_json({REASON: f"it did not get the lock on {change.path} of {system} within {seconds:g} s"})
        uow.changes.timers.append(Timer(record.ns, id_, due, 0, record.id, GAVE_UP, "[]", reason))
    return request


def _require_waiting(uow: UnitOfWork, record: Object) -> None:
    """Refuse that a change gives up waiting for a lock which it has got: a worker may have just claimed it."""
    work = None if record.op is None else uow.work(Key(record.ns, record.op))
    if work is not None and not uow.waits_for_locks(work):
        raise LockHeld(record.id)


def _check_secrets(uow: UnitOfWork, ns: str, change: ChangeSpec) -> None:
    """Refuse a deploy that refers to a secret which does not exist, or was deleted a moment ago."""
    for key in _secret_keys(ns, change):
        secret = uow.objects.get(key)
        if secret is None or secret.removed or secret.kind != SECRET.kind:
            raise SecretMissing(secret_name(key.id))


def check_logins(settings: SystemsSettings, ns: str, picture: DesiredTree) -> None:
    """Refuse a credential that is not for this namespace: the server would read its own files for anybody."""
    for path, program in picture.programs.items():
        login = program.registry_login
        if login is not None and not settings.may_log_in(login, ns):
            raise LoginNotGranted(ns, f"{picture.field_of(path)}.registry_login", login)


async def require_no_protected_part(uow: UnitOfWork, action: str, system: Key, change: ChangeSpec) -> None:
    """Refuse a deploy or a teardown that would remove a protected service, job or node pool, or a run of a job."""
    top = parse_path(change.path)
    below = {NODEPOOL.kind: pool_id(system.id, "")}
    if top != ROOT:
        below |= {SERVICE.kind: service_id(system.id, top), JOB.kind: job_id(system.id, top)}
    for kind in (SERVICE.kind, JOB.kind, NODEPOOL.kind):
        present = await uow.select(Selector(system.ns, kind, system.id, id_prefix=below.get(kind)))
        leaving = list(leaving_parts(system.id, change, present))
        for part in leaving:
            await require_no_flag(uow, action, part)
        await require_no_flag_in(uow, action, system, leaving)


async def drop_lock_timer(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:  # noqa: ARG001 - what follows an end
    """Remove the lock timer of a change that has ended, while it waited or after it started."""
    if WAIT in msgspec.json.decode(operation.args):
        uow.changes.timers_gone.append(Key(operation.ns, lock_timer_id(operation.object)))


def _require_living(uow: UnitOfWork, key: Key) -> Object:
    system = uow.objects.get(key)
    if system is None or system.removed or system.kind != SYSTEM.kind:
        raise NotFound(*key)
    if system.state not in LIVING:
        raise NotLiving(key.id, system.state)
    return system


async def guard_system(settings: SystemsSettings, uow: UnitOfWork, request: Request, system: Object) -> None:  # noqa: ARG001
    """Accept a deletion only with the lock on the whole system, and a system on this host only with a grant."""
    if request.creates is not None or request.spec is not None:
        check_host(settings, system.ns, None, request.spec)
        given = request.spec or "{}"
        require_known_fields(
            msgspec.json.decode(given), msgspec.json.decode(given, type=SystemSpec), request, system.state
        )
    if request.action == "delete" and (request.tree != system.id or request.locks != exclusive_lock("/")):
        raise LockMissing(system.id, request.action)


GAVE_UP = "gave up"


def lock_timer_id(change: str) -> str:
    """Return the id of the lock timer of a deploy or a teardown; stored databases have it."""
    return f"patience of {change}"
