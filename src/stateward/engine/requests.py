"""What can be asked of the engine, and how it answers."""

from msgspec import Struct

from stateward.errors import StatewardError
from stateward.lifecycle import Refusal
from stateward.store.records import Object, Operation, WorkItem

EMPTY = "{}"


class Creation(Struct, frozen=True, gc=False):
    """What an object is made of that does not exist yet."""

    kind: str
    parent: str | None = None
    labels: str = EMPTY
    queue: str | None = None  # the object in whose queue its operations stand; its own if None


class LockRequest(Struct, frozen=True, gc=False):
    """An intention lock that an operation must hold on its tree."""

    path: str
    mode: str


class Request(Struct, frozen=True, gc=False):
    """An action, or an event, on one object.

    `op` is the id of the operation to be; it is given before the first try, so that a request whose answer was lost
    can be repeated without being accepted twice. `birth` asks for a new object.
    """

    ns: str
    object: str
    action: str
    op: str
    actor: str = "user"
    who: str = ""
    facts: frozenset[str] = frozenset()
    args: str = EMPTY
    spec: str | None = None
    seen: str | None = None  # what was seen of the object, where the event tells of it
    creates: Creation | None = None
    key: str | None = None  # the caller's idempotency key
    version: int | None = None  # the version that the caller has seen
    priority: int = 0
    not_before: float = 0.0
    tree: str | None = None  # the tree that its locks are on
    locks: tuple[LockRequest, ...] = ()
    wait: bool = False  # wait for locks in turn, rather than be refused
    parent: str | None = None
    children: int = 0
    also_locks: tuple[
        str, ...
    ] = ()  # further objects that its guard will look at: they are locked with it, in one order


class Accepted(Struct, frozen=True, gc=False):
    """A request that was accepted: the object as it is now, and the operation that works on it, if work is needed."""

    object: Object
    operation: Operation | None
    again: bool = False  # this was the answer to the same request before

    @property
    def op(self) -> Operation:
        """The operation that works on it; there is none where the state was changed at once."""
        if self.operation is None:
            raise LookupError(f"{self.object.id} was changed at once: there is no operation to wait for")
        return self.operation


class Blocker(Struct, frozen=True, gc=False):
    """What is in the way: an operation, who asked for it, and since when; for locks also where and how."""

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
    """There is no such object."""

    code = "not_found"

    def __init__(self, ns: str, object: str) -> None:  # noqa: A002 - the glossary's word
        super().__init__(ns, object)
        self.ns, self.object = ns, object

    def __str__(self) -> str:
        return f"there is no object {self.object!r} in namespace {self.ns!r}"


class AlreadyExists(Denied):
    """An object of this name exists."""

    code = "exists"

    def __init__(self, ns: str, object: str, state: str) -> None:  # noqa: A002
        super().__init__(ns, object)
        self.ns, self.object, self.state = ns, object, state

    def __str__(self) -> str:
        return f"object {self.object!r} exists in namespace {self.ns!r} already, and is {self.state}"


class Refused(Denied):
    """The lifecycle, or an operation in the way, does not allow it now."""

    code = "refused"

    def __init__(self, refusal: Refusal, blocker: Blocker | None) -> None:
        super().__init__(refusal)
        self.refusal, self.blocker = refusal, blocker
        self.retry = blocker is not None

    def __str__(self) -> str:
        return f"{self.refusal}{_named(self.blocker)}"


class Occupied(Denied):
    """Hidden work on the object has to end first."""

    code = "occupied"
    retry = True

    def __init__(self, action: str, blocker: Blocker) -> None:
        super().__init__(action)
        self.action, self.blocker = action, blocker

    def __str__(self) -> str:
        return f"{self.action!r} is not possible now{_named(self.blocker)}"


class Locked(Denied):
    """Locks that the action needs are held, or were asked for before."""

    code = "locked"
    retry = True

    def __init__(self, tree: str, wish: LockRequest, blockers: tuple[Blocker, ...]) -> None:
        super().__init__(tree, wish)
        self.tree, self.wish, self.blockers = tree, wish, blockers

    def __str__(self) -> str:
        held = "; ".join(map(_holding, self.blockers))
        return f"{self.wish.mode} on {self.wish.path} of {self.tree} is not to be had: {held}"


def _holding(blocker: Blocker) -> str:
    """Say which lock somebody has, or wants, and what for."""
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
    """Return an operation as something that is in the way."""
    since = operation.started if operation.started is not None else operation.created
    return Blocker(
        operation.id,
        operation.action,
        operation.actor,
        operation.who,
        since,
        waiting=work is not None and not work.ready,
    )


def _named(blocker: Blocker | None) -> str:
    if blocker is None:
        return ""
    who = f" of {blocker.who}" if blocker.who else ""
    return f"; operation {blocker.op} ({blocker.action} by {blocker.actor}{who}) is in the way"
