"""Refusals of requests and of cancellations, and ends of operations, each with the facts that explain it."""

from typing import ClassVar

from msgspec import Struct

from stateward.engine.requests import LockRequest
from stateward.engine.snapshots import OperationSnapshot
from stateward.errors import StatewardError
from stateward.lifecycle import Refusal, RefusalCode
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
    object: str | None = None


class Denied(StatewardError):
    """The base of all refusals of a request; a denied request has changed nothing."""

    code = "denied"


class NothingToDo(Exception):
    """Raised by a guard that has changed nothing: the object is already as requested.

    The request is accepted without an operation, and nothing is written.
    """


class NotFound(Denied, code="not_found"):
    """The object does not exist."""

    ns: str
    object: str
    text = "there is no object {object!r} in namespace {ns!r}"


class AlreadyExists(Denied, code="exists"):
    """An object of this name exists already."""

    ns: str
    object: str
    state: str
    text = "object {object!r} exists in namespace {ns!r} already, and is {state}"


class Refused(Denied):
    """The lifecycle, or an operation in the way, does not allow the action now."""

    code = "refused"

    def __init__(self, refusal: Refusal, blocker: Blocker | None) -> None:
        super().__init__(refusal)
        self.refusal, self.blocker = refusal, blocker
        self.retry = blocker is not None and refusal.reason is not RefusalCode.NOT_YOURS

    def __str__(self) -> str:
        return f"{self.refusal}{_describe_blocker(self.blocker)}"


class Occupied(Denied, code="occupied", retry=True):
    """An operation on the object, such as hidden work, has to end first."""

    action: str
    blocker: Blocker

    def __str__(self) -> str:
        return f"{self.action!r} is refused now{_describe_blocker(self.blocker)}"


class Locked(Denied, code="locked", retry=True):
    """A lock that the action needs conflicts with locks that others hold or wait for."""

    tree: str
    lock: LockRequest
    blockers: tuple[Blocker, ...]

    def __str__(self) -> str:
        held = "; ".join(map(_describe_lock, self.blockers))
        return f"lock {self.lock.mode} on {self.lock.path} of {self.tree} is not free: {held}"


def _describe_lock(blocker: Blocker) -> str:
    """Return the lock that an operation holds or waits for, as text."""
    op = f"operation {blocker.op}"
    what = op if blocker.object is None else f"{blocker.action} {blocker.object} ({op})"
    who = f" of {blocker.who}" if blocker.who else ""
    return f"{what}{who} {'waits for' if blocker.waiting else 'holds'} {blocker.mode} on {blocker.path}"


class UnknownKind(Denied, code="unknown_kind"):
    """Only other processes know the kind of a stored object: its plug-in is not loaded in this one."""

    kind: str
    text = "this process does not know the kind {kind}: the plug-in that declares it is not loaded here"


class UnknownVersion(UnknownKind, code="unknown_version"):
    """Only processes with another version of its plugin know the spec or the state of an object."""

    what: str  # as in "version 2 of the specs of app.vm"
    text = "this process does not know {what}: another version of its plugin has written it, and can act on it"


class Protected(Denied, code="protected"):
    """The object, an ancestor or its namespace is protected against removal; `holder` is None for the namespace."""

    action: str
    ns: str
    object: str
    holder: str | None
    reason: str

    @property
    def command(self) -> str:
        """The command that lifts the flag."""
        name = "--namespace-flag" if self.holder is None else self.holder
        return f"stateward unprotect {name} -n {self.ns}"

    def __str__(self) -> str:
        place = f"namespace {self.ns!r}" if self.holder is None else f"object {self.holder!r}"
        why = "" if self.reason == "yes" else f" ({self.reason})"
        return (
            f"{self.action!r} would remove {self.object!r}, or parts of it, and {place} is protected{why};"
            f" `{self.command}` lifts the protection"
        )


class VersionMismatch(Denied, code="version"):
    """The object has changed since the caller saw it."""

    object: str
    expected: int
    found: int
    text = "object {object!r} is at version {found}, not {expected}"


class KeyReused(Denied, code="key_reused"):
    """The idempotency key was used for another request."""

    key: str
    text = "the idempotency key {key!r} was used for another request"


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
    who = f" ({blocker.who})" if blocker.who not in ("", blocker.actor) else ""
    return f"; blocked by operation {blocker.op}, {blocker.action} by {blocker.actor}{who}"


class NoSuchOperation(Denied, code="not_found"):
    """The operation does not exist."""

    ns: str
    op: str
    text = "there is no operation {op!r} in namespace {ns!r}"


class AlreadyEnded(Denied, code="ended"):
    """The operation has ended already."""

    op: str
    status: Status

    def __str__(self) -> str:
        if self.status is Status.CANCELLED:  # another request may have taken its object over
            return f"operation {self.op} was cancelled already; it takes nothing more, even while its worker stops it"
        return f"operation {self.op} has {self.status} already"


class TooManySignals(Denied, code="too_many_signals", retry=True):
    """The operation has as many signals that it has not waited for as are kept."""

    op: str
    waiting: int
    most: int
    most_chars: int
    text = (
        "operation {op} has {waiting} signals that it has not waited for yet; at most {most:,} are kept, with "
        "{most_chars:,} characters of payload in all: send this one when some are taken"
    )


class NotCancelled(Denied, code="not_cancelled"):
    """Operations of this kind cannot be cancelled."""

    op: str
    kind: str
    text = "operation {op} cannot be cancelled: operations on {kind} run to their end, or to their deadline"


class NotYourOperation(Denied, code="forbidden"):
    """The caller cannot cancel or signal an operation, because it could not have requested it."""

    op: str
    action: str
    kind: str
    actor: str
    text = "operation {op} is not the caller's: {action!r} of {kind} is not for the actor {actor}"


class NoneAllowed(Denied, code="none_allowed"):
    """No member of a group allows the action."""

    action: str
    skipped: dict[str, StatewardError]

    def __str__(self) -> str:
        if not self.skipped:
            return f"{self.action!r} has no members to act on"
        reasons = "; ".join(f"{name}: {why}" for name, why in list(self.skipped.items())[:3])
        members = "the only member" if len(self.skipped) == 1 else f"all {len(self.skipped):,} members"
        return f"{self.action!r} is refused by {members}: {reasons}"


class OperationFailed(StatewardError, code="operation_failed"):
    """An operation ended without success; `state` is that of its object, None if the object is gone."""

    operation: OperationSnapshot
    state: str | None

    def __str__(self) -> str:
        op, end = self.operation, self.end
        now = f"is {self.state}" if self.state is not None else "is gone"
        why = f": {op.error}" if op.error and not end.endswith(op.error) else ""
        return f"{op.action!r} of {op.kind} {op.object!r} {end}{why}; it {now} (operation {op.id})"

    end: ClassVar[str] = "failed"
    """How the operation ended, as a verb."""


class OperationTimedOut(OperationFailed, code="operation_timed_out"):
    """An operation did not end before its deadline."""

    end: ClassVar[str] = "timed out"


class OperationCancelled(OperationFailed, code="operation_cancelled"):
    """An operation was cancelled, or another one took its object over."""

    end: ClassVar[str] = "was cancelled"


class MissingHandlers(StatewardError):
    """Kinds have actions that no worker of this process could carry out."""

    actions: dict[str, list[str]]

    def __str__(self) -> str:
        missing = "; ".join(f"{kind} has no handler for {', '.join(names)}" for kind, names in self.actions.items())
        return f"{missing}: write one with @kind.handles(action), or open the engine without a worker (works=False)"


class EngineNotEntered(StatewardError):
    """An engine was used that was not entered yet, or has been left."""

    text = "the engine is not running: use it inside of `async with Engine(store, kinds) as engine:`"
