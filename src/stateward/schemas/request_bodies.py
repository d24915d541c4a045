"""Bodies of requests. Unknown fields are refused, and so is a number given as text."""

from typing import Annotated

from msgspec import Meta, Struct, field

from stateward.access import Role
from stateward.access.quotas import Most
from stateward.locks.modes import Mode
from stateward.schemas import params


class Body(Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all bodies."""


class NewObject(Body, frozen=True, kw_only=True):
    """A new object."""

    id: params.Plain
    kind: params.Text
    action: params.Text | None = None
    spec: params.Spec | None = None
    labels: params.Labels | None = None
    parent: params.Part | None = None
    queue: params.Part | None = None
    args: params.Args | None = None
    facts: params.Facts = []
    priority: params.Priority = 0
    not_before: params.Time | None = None


class NewLabels(Body, frozen=True):
    """The labels of an object; they replace all that it has."""

    labels: params.Labels


class NewProtection(Body, frozen=True):
    """The deletion protection of an object or a namespace, with the reason for it."""

    protected: bool
    reason: Annotated[str, Meta(max_length=250)] = ""


class Forget(Body, frozen=True):
    """A request to remove the record of an object whose plug-in is gone."""

    kind: Annotated[str, Meta(min_length=1, max_length=250, description="the object's kind, as a confirmation")]


class WishedLock(Body, frozen=True):
    """An intention lock that the action must hold on its tree."""

    path: params.Text
    mode: Mode


class NewSignal(Body, frozen=True):
    """A signal to an operation."""

    payload: params.Json = None


class Ask(Body, frozen=True, kw_only=True):
    """A request for an action."""

    args: params.Args | None = None
    spec: params.Spec | None = None
    facts: params.Facts = []
    priority: params.Priority = 0
    not_before: params.Time | None = None
    tree: params.Part | None = None
    locks: Annotated[list[WishedLock], Meta(max_length=100)] = []
    wait_for_locks: bool = False


class Planned(Ask, frozen=True, kw_only=True):
    """A request for an action, to be planned only; with a `kind`, the action would create the object."""

    object: params.Part
    action: params.Text
    kind: params.Text | None = None
    labels: params.Labels | None = None
    parent: params.Part | None = None


class Plan(Body, frozen=True):
    """Requests to be planned, one after the other."""

    requests: Annotated[list[Planned], Meta(min_length=1, max_length=1000)]


class Chosen(Body, frozen=True, kw_only=True):
    """The objects of a group action; a field that is not given matches all."""

    kind: params.Text | None = None
    parent: params.Part | None = None
    states: Annotated[list[params.Text], Meta(max_length=100)] | None = None
    labels: params.Labels | None = None
    q: params.Text | None = None


class Whole(Body, frozen=True):
    """The composite that the group belongs to, and the action on it."""

    object: params.Part
    action: params.Text


class GroupAsk(Body, frozen=True, kw_only=True):
    """A request for an action on all chosen objects, and on their composite: by a selector, or by their ids."""

    selector: Chosen | None = None
    objects: Annotated[list[params.Part], Meta(min_length=1, max_length=10_000)] | None = None
    facts: params.Facts = []
    args: params.Args | None = None
    priority: params.Priority = 0
    whole: Whole | None = None


class LaneLimit(Body, frozen=True):
    """The capacity of a lane."""

    grp: params.Text
    capacity: Most


class GroupLimit(Body, frozen=True):
    """The number of lanes of a group that may be active at once."""

    lanes: Most


class Prune(Body, frozen=True, kw_only=True):
    """A request to prune: the history of what ended more than `older` seconds ago."""

    older: Annotated[int, Meta(ge=3_600, le=10**10, description="seconds: an hour at least")]
    dry_run: Annotated[bool, Meta(description="only say how much it would be")] = False
    after: Annotated[int, Meta(ge=0, le=10**15, description="`next` of the call before")] = 0


class NewToken(Body, frozen=True, kw_only=True):
    """A new token."""

    name: params.TokenName
    role: Role
    namespaces: Annotated[list[params.Namespace], Meta(min_length=1, max_length=1000)]
    expires: params.Time | None = None


class NewSession(Body, frozen=True):
    """The token of somebody who signs in."""

    token: Annotated[str, Meta(min_length=1, max_length=200)]


class NewQuota(Body, frozen=True, kw_only=True):
    """Limits of a namespace; a field that is not given sets no limit."""

    objects: Annotated[dict[params.Text, Most], Meta(max_length=1000)] = field(default_factory=dict)
    operations: Most | None = None
