"""Objects in responses: their state, the actions that they allow, and the state that they had."""

from msgspec import Struct

from stateward.lifecycle import StateClass
from stateward.schemas.params import Json, Moment


class ObjectView(Struct, frozen=True):
    """An object: what is wanted of it (`spec`), what was last seen of it, and the operation that holds its state."""

    ns: str
    id: str
    kind: str
    state: str
    state_class: StateClass | None
    since: Moment
    version: int
    generation: int
    op: str | None
    queue: str
    parent: str | None
    spec: Json
    seen: Json
    labels: dict[str, str]
    error: str | None
    created: Moment


class ObjectPage(Struct, frozen=True):
    """A page of objects, in the order of their ids; `next` is where to go on, or null at the end."""

    items: list[ObjectView]
    next: str | None


class NamespaceView(Struct, frozen=True):
    """A namespace: how many objects it has of each kind in each state."""

    ns: str
    counts: dict[str, dict[str, int]]


class Possible(Struct, frozen=True):
    """Something that can be asked for: allowed as it is or not, what it needs, and where it leads."""

    event: str
    allowed: bool
    why_not: str | None
    needs: list[str]
    target: str | None
    desired: str | None
    within: float | None

    @property
    def end(self) -> str | None:
        """The state that it leads to in the end."""
        return self.desired or self.target


class AllowedView(Struct, frozen=True):
    """What may be done to an object now by the caller, and why the rest may not."""

    state: str
    state_class: StateClass | None
    actions: list[Possible]


class StateView(Struct, frozen=True):
    """The state that an object was in at a time; null if it did not exist, or if that is not `known` any more."""

    time: Moment
    state: str | None
    state_class: StateClass | None
    known: bool
