"""The rules of this domain inside the accepting transaction.

What changes a system's definition must hold its lock; so a deploy, a teardown or a delete without it is refused,
wherever it was asked for. And a deploy is accepted only while its system lives: the system's row is locked meanwhile,
so no deletion can come in between.
"""

from collections.abc import Iterable

import msgspec

from stateward.domains.systems.errors import LocalBackendNotGranted, LockMissing, NotLiving
from stateward.domains.systems.lifecycle import LIVING, SYSTEM
from stateward.domains.systems.model import LOCAL, ChangeSpec, SystemSpec
from stateward.domains.systems.object_ids import system_of
from stateward.domains.systems.settings import SystemsSettings
from stateward.engine import LockRequest, NotFound, Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.locks.modes import Mode
from stateward.store.changes import Ended
from stateward.store.records import Key, Object, Operation, Timer

CHANGES = ("deploy", "teardown")
WAIT = "wait"
"""The argument that says how many seconds to wait for locks."""


def check_host(settings: SystemsSettings, ns: str, system: Object | None, spec: str | None = None) -> None:
    """Refuse what a namespace may not do on this host; `spec` is that of a system that is to be."""
    text = spec if spec is not None else "{}" if system is None else system.spec
    wanted = msgspec.json.decode(text or "{}", type=SystemSpec)
    if wanted.backend == LOCAL and not settings.may_use_host(ns):
        raise LocalBackendNotGranted(ns)


def exclusive_lock(path: str) -> tuple[LockRequest, ...]:
    """Return the lock that a change of a path needs; its intentions on what is above follow from it."""
    return (LockRequest(path, Mode.X.value),)


def lock_system(request: Request, found: Object | None) -> Iterable[Key]:  # noqa: ARG001 - the company of a guard
    """Name the system that a deploy or a teardown is of."""
    return [Key(request.ns, system_of(request.object))]


async def guard_change(settings: SystemsSettings, uow: UnitOfWork, request: Request, found: Object) -> None:
    """Accept a deploy or a teardown only with its lock, and only of a system that lives."""
    if request.action not in CHANGES:
        return
    system, path = system_of(found.id), "/"
    if request.action == "deploy":
        try:
            path = msgspec.json.decode(request.spec or "{}", type=ChangeSpec).path
        except msgspec.ValidationError:
            raise LockMissing(system, request.action) from None
    if request.tree != system or request.locks != exclusive_lock(path):
        raise LockMissing(system, request.action)
    _check_living(uow, Key(found.ns, system))
    if request.action == "deploy":
        check_host(settings, found.ns, uow.objects.get(Key(found.ns, system)))
    if request.wait:
        seconds = float(msgspec.json.decode(request.args).get(WAIT, 0.0))
        uow.changes.timers.append(lock_timer(found.ns, found.id, uow.now + seconds))


async def drop_lock_timer(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:  # noqa: ARG001 - what follows an end
    """Take back the timer of a change that has ended, however: while it waited, or after it began."""
    if WAIT in msgspec.json.decode(operation.args):
        uow.changes.timers_gone.append(Key(operation.ns, lock_timer_id(operation.object)))


def _check_living(uow: UnitOfWork, key: Key) -> None:
    system = uow.objects.get(key)
    if system is None or system.removed or system.kind != SYSTEM.kind:
        raise NotFound(*key)
    if system.state not in LIVING:
        raise NotLiving(key.id, system.state)


async def guard_system(settings: SystemsSettings, uow: UnitOfWork, request: Request, found: Object) -> None:  # noqa: ARG001
    """Accept a deletion only with the lock on the whole system, and a system on this host only with a grant."""
    if request.creates is not None:
        check_host(settings, found.ns, None, request.spec)
    if request.action == "delete" and (request.tree != found.id or request.locks != exclusive_lock("/")):
        raise LockMissing(found.id, request.action)


GAVE_UP = "gave up"


def lock_timer_id(change: str) -> str:
    """Return the id of the timer of a deploy or a teardown."""
    return f"patience of {change}"


def lock_timer(ns: str, change: str, due: float) -> Timer:
    """Return the timer by which waiting ends."""
    return Timer(ns, lock_timer_id(change), due, 0, change, GAVE_UP, "[]", "{}")
