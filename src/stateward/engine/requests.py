"""Requests to the engine, and their acceptance."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict

from msgspec import Struct, field

from stateward.store.records import Object, Operation, to_json

EMPTY = "{}"

REASON = "reason"
"""The argument of an event that says why it ends an operation without success."""


class Creation(Struct, frozen=True, gc=False):
    """The description of an object to create."""

    kind: str
    parent: str | None = None
    labels: str = EMPTY
    queue: str | None = None  # the object whose queue its operations use; its own if None


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
    seen: str | None = None  # the observed state of the object, if the event tells it
    creates: Creation | None = field(default=None, name="birth")
    key: str | None = None  # the caller's idempotency key
    version: int | None = None  # the version that the caller expects
    priority: int = 0
    not_before: float = 0.0
    tree: str | None = None  # the tree of its locks
    locks: tuple[LockRequest, ...] = ()
    wait: bool = False  # wait for locks in turn instead of being refused
    parent: str | None = None
    children: int = 0
    also_locks: tuple[str, ...] = field(default=(), name="beside")  # further objects that its guard reads and locks


class RequestOptions(TypedDict, total=False):
    """The options of a request, as `Request` describes them; `args` and `seen` are anything that is JSON."""

    actor: str
    who: str
    facts: Iterable[str]
    args: Any
    seen: Any
    key: str | None
    version: int | None
    priority: int
    not_before: float
    tree: str | None
    locks: Sequence[LockRequest]
    wait: bool
    also_locks: Sequence[str]


class CreateOptions(RequestOptions, total=False):
    """The options of a request that creates an object, if it says how."""

    spec: Any
    labels: dict[str, str] | None
    parent: str | None
    queue: str | None


STORED_FORMS: dict[str, Callable[[Any], Any]] = {
    "args": to_json,
    "spec": to_json,
    "seen": to_json,
    "facts": frozenset,
    "locks": tuple,
    "also_locks": tuple,
}
"""How a request keeps options that callers give in another form."""


class Accepted(Struct, frozen=True, gc=False):
    """An accepted request: the object as it is now, and its operation, unless the state changed at once."""

    object: Object
    operation: Operation | None
    again: bool = False  # the same request was accepted before

    def __repr__(self) -> str:  # the rows may hold secrets
        op = None if self.operation is None else self.operation.id
        return f"Accepted(object={self.object.id!r}, state={self.object.state!r}, op={op!r}, again={self.again})"

    @property
    def op(self) -> Operation:
        """The operation; raises if the state was changed at once."""
        if self.operation is None:
            raise LookupError(f"{self.object.id} was changed at once: there is no operation to wait for")
        return self.operation
