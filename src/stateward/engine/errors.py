"""Refusals of requests and of cancellations, each with the facts that explain it."""

from msgspec import Struct

from stateward.engine.requests import LockRequest
from stateward.errors import StatewardError
from stateward.lifecycle import Refusal
from stateward.store.records import Operation, Status, WorkItem


class Blocker(Struct, frozen=True, gc=False):
    """An operation in the way: who asked for it, and since when; for locks also the path and the mode."""

    op: str
    action: str
    actor: str
    who: str
    since: float
    path: str | None = None
    mode: str | None = None
    waiting: bool = False


class Denied(StatewardError):
    """The base of all refusals of a request; a denied request has changed nothing."""

    code = "denied"


class NotFound(Denied):
    """The object does not exist."""

    code = "not_found"

    def __init__(self, ns: str, object: str) -> None:  # noqa: A002 - the glossary's word
        super().__init__(ns, object)
        self.ns, self.object = ns, object

    def __str__(self) -> str:
        return f"there is no object {self.object!r} in namespace {self.ns!r}"


class AlreadyExists(Denied):
    """An object of this name exists already."""

    code = "exists"

    def __init__(self, ns: str, object: str, state: str) -> None:  # noqa: A002
        super().__init__(ns, object)
        self.ns, self.object, self.state = ns, object, state

    def __str__(self) -> str:
        return f"object {self.object!r} exists in namespace {self.ns!r} already, and is {self.state}"


class Refused(Denied):
    """The lifecycle, or an operation in the way, does not allow the action now."""

    code = "refused"

    def __init__(self, refusal: Refusal, blocker: Blocker | None) -> None:
        super().__init__(refusal)
        self.refusal, self.blocker = refusal, blocker
        self.retry = blocker is not None

    def __str__(self) -> str:
        return f"{self.refusal}{_describe_blocker(self.blocker)}"


class Occupied(Denied):
    """Hidden work on the object has to end first."""

    code = "occupied"
    retry = True

    def __init__(self, action: str, blocker: Blocker) -> None:
        super().__init__(action)
        self.action, self.blocker = action, blocker

    def __str__(self) -> str:
        return f"{self.action!r} is not possible now{_describe_blocker(self.blocker)}"


class Locked(Denied):
    """A lock that the action needs conflicts with locks that others hold or wait for."""

    code = "locked"
    retry = True

    def __init__(self, tree: str, lock: LockRequest, blockers: tuple[Blocker, ...]) -> None:
        super().__init__(tree, lock)
        self.tree, self.lock, self.blockers = tree, lock, blockers

    def __str__(self) -> str:
        held = "; ".join(map(_describe_lock, self.blockers))
        return f"lock {self.lock.mode} on {self.lock.path} of {self.tree} is not free: {held}"


def _describe_lock(blocker: Blocker) -> str:
    """Return the lock that an operation holds or waits for, as text."""
    what = f"{blocker.action} " * bool(blocker.action) + blocker.op
    who = f" of {blocker.who}" if blocker.who else ""
    return f"{what}{who} {'waits for' if blocker.waiting else 'holds'} {blocker.mode} on {blocker.path}"


class VersionMismatch(Denied):
    """The object has changed since the caller saw it."""

    code = "version"

    def __init__(self, object: str, expected: int, found: int) -> None:  # noqa: A002
        super().__init__(object, expected, found)
        self.object, self.expected, self.found = object, expected, found

    def __str__(self) -> str:
        return f"object {self.object!r} is at version {self.found}, not {self.expected}"


class KeyReused(Denied):
    """The idempotency key was used for another request."""

    code = "key_reused"

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"the idempotency key {self.key!r} was used for another request"


def blocker_of(operation: Operation, work: WorkItem | None = None) -> Blocker:
    """Return an operation as the blocker of a request."""
    since = operation.started if operation.started is not None else operation.created
    return Blocker(
        operation.id,
        operation.action,
        operation.actor,
        operation.who,
        since,
        waiting=work is not None and not work.ready,
    )


def _describe_blocker(blocker: Blocker | None) -> str:
    if blocker is None:
        return ""
    who = f" of {blocker.who}" if blocker.who else ""
    return f"; operation {blocker.op} ({blocker.action} by {blocker.actor}{who}) is in the way"


class NoSuchOperation(Denied):
    """The operation does not exist."""

    code = "not_found"

    def __init__(self, ns: str, op: str) -> None:
        super().__init__(ns, op)
        self.ns, self.op = ns, op

    def __str__(self) -> str:
        return f"there is no operation {self.op!r} in namespace {self.ns!r}"


class AlreadyEnded(Denied):
    """The operation has ended already."""

    code = "ended"

    def __init__(self, op: str, status: Status) -> None:
        super().__init__(op, status)
        self.op, self.status = op, status

    def __str__(self) -> str:
        return f"operation {self.op} has {self.status} already"


class NotCancelled(Denied):
    """Operations of this kind cannot be cancelled."""

    code = "not_cancelled"

    def __init__(self, op: str, kind: str) -> None:
        super().__init__(op, kind)
        self.op, self.kind = op, kind

    def __str__(self) -> str:
        return (
            f"operation {self.op} cannot be cancelled: operations on {self.kind} run to their end, or to their deadline"
        )


class NoneAllowed(Denied):
    """No member of a group allows the action."""

    code = "none_allowed"

    def __init__(self, action: str, skipped: dict[str, StatewardError]) -> None:
        super().__init__(action)
        self.action, self.skipped = action, skipped

    def __str__(self) -> str:
        if not self.skipped:
            return f"{self.action!r} has no members to act on"
        reasons = "; ".join(f"{name}: {why}" for name, why in list(self.skipped.items())[:3])
        return f"{self.action!r} is allowed by none of the {len(self.skipped)} members: {reasons}"
