"""What can be asked of the engine, and how it answers."""

from msgspec import Struct, field

from stateward.store.records import Object, Operation

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
    can be repeated without being accepted twice. `creates` asks for a new object. The encoded names of fields are in
    the stored fingerprints of requests with a key, and stay.
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
    creates: Creation | None = field(default=None, name="birth")
    key: str | None = None  # the caller's idempotency key
    version: int | None = None  # the version that the caller has seen
    priority: int = 0
    not_before: float = 0.0
    tree: str | None = None  # the tree that its locks are on
    locks: tuple[LockRequest, ...] = ()
    wait: bool = False  # wait for locks in turn, rather than be refused
    parent: str | None = None
    children: int = 0
    also_locks: tuple[str, ...] = field(default=(), name="beside")  # further objects that its guard reads and locks


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
