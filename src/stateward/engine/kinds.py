"""Kinds of objects: their lifecycles, handlers, lanes, guards and hooks."""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from stateward.engine.errors import NotYourOperation, UnknownKind, UnknownVersion
from stateward.engine.handlers import Handler, Observe, PlainRun
from stateward.engine.job import Run
from stateward.engine.kind_types import VERSION_STAMP, KindTypes, UnfitValue, Upgrade, spec_version_of
from stateward.engine.privacy import PUBLIC, Disclosure, Privacy
from stateward.engine.requests import Request
from stateward.engine.typed_values import check_columns
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput, UnknownName, UnknownValue
from stateward.lifecycle import ADMIN, Lifecycle, Move
from stateward.lifecycle.decide import decide, is_end
from stateward.lifecycle.rows import BEGINNINGS, Meaning
from stateward.store.changes import Ended
from stateward.store.errors import WriteConflict
from stateward.store.filters import Selector
from stateward.store.port import KindFilter
from stateward.store.records import STATE_FIELDS, Key, Object, Operation, Timer

log = logging.getLogger("stateward.engine")

HandlerFunction = TypeVar("HandlerFunction", bound=Run | PlainRun)

Guard = Callable[[UnitOfWork, Request, Object], Awaitable[Request | None]]
"""A domain's own condition on a request, checked inside the transaction; raises a Denied.

It is the last check, so it may change objects in the unit of work, its own and others. It may return the request with
what only the transaction knows: further facts, a new spec, the parent and the labels of a new object. It raises
`NothingToDo` if the object already is as requested.
"""

LockSet = Callable[[Request, Object | None], Iterable[Key]]
"""Returns the objects that a guard will read, given a request and its object, if it exists."""


EndHook = Callable[[UnitOfWork, Operation, Ended], Awaitable[None]]
"""A domain's hook at the end of an operation, inside the transaction; it may change any loaded objects."""


class Admission(Protocol):
    """A condition on requests of all kinds, checked inside the transaction, such as a quota."""

    def needs(self, request: Request) -> Key | None:
        """Return the object that must be locked until the request is written, if there is one."""

    async def check(self, uow: UnitOfWork, request: Request, record: Object, *, begins: bool) -> None:
        """Raise a Denied if the request must not be accepted; `begins` says that it begins an operation."""

    def accepted(self, uow: UnitOfWork, request: Request, record: Object, *, begins: bool) -> None:
        """Count an accepted request in this unit of work."""


class Party(Struct, frozen=True):
    """Another party that carries out operations and reports about them, such as an agent.

    `object` is the id of the object that represents it; in the states `absent` of that object, it cannot report.
    """

    name: str
    object: str
    absent: frozenset[str] = frozenset()


class Route(Struct, frozen=True):
    """The lane of an operation, and the lane's group."""

    grp: str = ""
    lane: str = ""


ANYWHERE = Route()


class Rules(Struct, frozen=True, kw_only=True):
    """What can be done with the objects of a kind, beyond what its table says."""

    cancels: bool | Collection[str] = True  # its operations can be cancelled; or only those of these actions
    cancel_action: str = ""  # the action on an object that cancels its operation, where that is not the engine's work
    delegated: Collection[str] = ()  # actions that operations on other objects carry out, and that need no handler
    removal_actions: Collection[str] = ("delete",)  # that count as removals, wherever their rows lead
    removes_below: Collection[str] = ()  # actions that also remove what is below the object, which can be protected
    reserved_labels: Collection[str] = ()  # by which its domain finds its objects, and which nobody else may change
    names_namespace: Callable[[str], Key] | None = None  # returns the object by which a namespace exists


class Why(Struct, frozen=True, kw_only=True):
    """What `why` finds out about the objects of a kind, beyond what the engine knows."""

    party: Callable[[Object], Party] | None = None  # returns the other party that carries out an object's operations
    part_of: Callable[[Object], str] | None = None  # returns what an object is part of, where that is not its parent
    has_alerts: bool = False  # its objects have alerts in their status
    fault: Callable[[Object], str] = lambda _object: ""  # returns what its status says is wrong, besides its `error`
    unhealthy_parts: Callable[[Object], Sequence[Selector]] = lambda _object: ()  # selects what made it unhealthy


class Kind(Struct, eq=False):
    """A lifecycle with everything that a domain adds to it."""

    lifecycle: Lifecycle
    handlers: dict[str, Handler] = field(default_factory=dict)  # by action; bounded by: the actions of a kind
    # Hooks: code of the domain inside the engine's transactions.
    route: Callable[[Object, str], Route] = lambda _object, _action: ANYWHERE
    guard: Guard | None = None
    lock_set: LockSet | None = None
    on_end: EndHook | None = None
    # Types: what specs and arguments look like.
    spec: type[Struct] | None = None  # the type of its specs; any JSON without one
    spec_actions: Collection[str] = ()  # the actions that may replace the spec of an existing object
    spec_version: int = 1  # counts changes of the type that old specs do not fit
    upgrade: Upgrade | None = None  # returns a spec of an earlier version in the present one
    args: Mapping[str, type[Struct]] = {}  # the types of arguments, by action; those of handlers are added
    # Who can create its objects and see them, and what they are told.
    general: bool = True  # the general API may create its objects, for actors that its table allows
    made_by: str = ""  # the command that creates its objects; the general API may not
    privacy: Privacy = PUBLIC  # the parts of its records that not everybody sees
    columns: Sequence[str] = ()  # the fields that a list of its objects shows: `spec.address`, `labels.team`
    rules: Rules = Rules()
    why: Why = Why()
    types: KindTypes | None = None  # made of `spec` and `args`

    def __post_init__(self) -> None:
        self.general = self.general and not self.made_by
        self.args = dict(self.args)
        self.spec_actions = frozenset(self.spec_actions)
        for action in (*self.args, *self.spec_actions):
            self.lifecycle.sources(action)
        self._set_types()
        check_columns(self.name, self.columns, None if self.types is None else self.types.spec)

    def _set_types(self) -> None:
        of_handlers = {action: handler.args for action, handler in self.handlers.items() if handler.args is not None}
        args = {**self.args, **of_handlers}
        is_typed = bool(args) or self.spec is not None or self.spec_version != 1 or self.upgrade is not None
        self.types = KindTypes(self.name, self.spec, args, self.spec_version, self.upgrade) if is_typed else None

    @property
    def name(self) -> str:
        """The kind's name."""
        return self.lifecycle.kind

    def can_cancel(self, action: str) -> bool:
        """Tell whether the operations of an action can be cancelled."""
        cancels = self.rules.cancels
        return cancels if isinstance(cancels, bool) else action in cancels

    @property
    def creating_actions(self) -> list[str]:
        """The actions that create an object."""
        return list(dict.fromkeys(event.event for event in self.lifecycle.allowed[self.lifecycle.initial]))

    def check_spec_right(self, request: Request, state: str) -> None:
        """Refuse a spec in a request for an action that does not take one.

        Only a creation and the `spec_actions` take a spec, from every actor. So the right to an action never includes
        the right to change the object's spec as a side effect.
        """
        if request.spec is not None and request.spec.startswith(VERSION_STAMP):
            at = None if state == self.lifecycle.initial else state
            raise UnfitValue(BadInput("spec.$version", None, "left out: the engine adds the version", state=at))
        if request.spec is None or state == self.lifecycle.initial or request.action in self.spec_actions:
            return
        takers = ", ".join(dict.fromkeys((*self.creating_actions, *sorted(self.spec_actions))))
        why = f"{request.action!r} does not change the spec of {self.name}; these actions take one: {takers}"
        raise UnfitValue(BadInput("spec", None, f"left out: {why}", state=state))

    def can_interfere(self, operation: Operation, actor: str | None) -> bool:
        """Return whether an actor may cancel or signal an operation: one that the table allows to request it.

        Administrators may do so with every operation, because they have to end what is stuck; so may the program
        itself (None).
        """
        if actor is None or actor == ADMIN:
            return True
        facts = frozenset(msgspec.json.decode(operation.facts, type=list[str]))
        return isinstance(decide(self.lifecycle, operation.origin, operation.action, actor, facts), Move)

    def missing_handlers(self) -> list[str]:
        """Return the actions of workers that have no handler; another party may carry out a request."""
        ours = (row.event for row in self.lifecycle.rows if row.meaning in (Meaning.ACTION, Meaning.HIDDEN))
        elsewhere = self.rules.delegated
        return [name for name in dict.fromkeys(ours) if name not in self.handlers and name not in elsewhere]

    def read_spec(self, record: Object) -> Any:  # noqa: ANN401 - the kind's struct, or any JSON
        """Return the spec of a stored object: in the present version if the kind has a type of specs, or any JSON."""
        return msgspec.json.decode(record.spec) if self.types is None else self.types.read_spec(record.spec)

    def removes(self, move: Move) -> bool:
        """Return whether a move removes its object, or parts of it."""
        return self.is_removal(move.event, move.desired or move.target)

    def is_removal(self, action: str, end: str) -> bool:
        """Return whether an action that is to end in a state removes its object, or parts of it.

        If the creation of objects is to end in a final state, they are runs, such as deploys: only the end of their
        record is a removal.
        """
        if action in self.rules.removal_actions:
            return True
        end, created = self.lifecycle.state(end), self.lifecycle.allowed[self.lifecycle.initial]
        return is_end(self.lifecycle, end) and (
            end.is_absent or not any(is_end(self.lifecycle, event.desired or event.target) for event in created)
        )

    def with_handlers(self, handlers: dict[str, Handler]) -> "Kind":
        """Return a copy of the kind with other handlers."""
        return replace(self, handlers=handlers)

    def handles(
        self,
        action: str,
        *,
        observe: Observe | None = None,
        attempts: int | None = None,
        args: type[Struct] | None = None,
    ) -> Callable[[HandlerFunction], HandlerFunction]:
        """Register the decorated function as the handler of an action; `args` is the type of its arguments.

        A function that is not async is called in a thread, with a `BlockingJob`.
        """

        def register(run: HandlerFunction) -> HandlerFunction:
            self.lifecycle.sources(action)  # an unknown action is an error with the nearest name
            self.handlers[action] = Handler(cast("Run", run), observe, attempts, args=args)
            self._set_types()
            return run

        return register


class Kinds:
    """All kinds, by name."""

    __slots__ = (
        *("_disclosures", "_kinds", "admission", "any_end_hook", "any_lock_set", "filter"),
        *("removing_events", "steps"),
    )

    def __init__(self, kinds: Iterable[Kind], admission: Admission | None = None) -> None:
        self.admission = admission
        self.filter: KindFilter = None
        """The condition on the kinds of claims and due times; there is none before `pass_over_unknown` found a need."""
        self._kinds: dict[str, Kind] = {}
        for kind in kinds:
            if kind.name in self._kinds:
                raise BadInput("kind", kind.name, "a name of its own: there are two kinds of this name")
            self._kinds[kind.name] = kind
        self.any_end_hook = any(kind.on_end is not None for kind in self)
        self.any_lock_set = any(kind.lock_set is not None for kind in self)
        rows = (row for kind in self for row in kind.lifecycle.rows)
        self.steps = frozenset(row.event for row in rows if row.meaning not in BEGINNINGS)
        """The events that change a state at once, without an operation."""
        self.removing_events = frozenset(
            move.event for kind in self for move in kind.lifecycle.every_move() if kind.removes(move)
        )
        """The events that remove objects of some kind."""
        shown = [(kind.lifecycle, kind.privacy) for kind in self]
        self._disclosures = tuple(Disclosure(shown, self.types, internal=internal) for internal in (False, True))

    def __getitem__(self, name: str) -> Kind:
        try:
            return self._kinds[name]
        except KeyError:
            raise UnknownName("kind", name, self._kinds) from None

    def why(self, kind: str) -> Why:
        """Return what `why` finds out about a kind; nothing if this process does not know it."""
        known_kind = self._kinds.get(kind)
        return Why() if known_kind is None else known_kind.why

    def types(self, kind: str) -> KindTypes | None:
        """Return the declared types of a kind, if it has some, and if this process knows it."""
        known_kind = self._kinds.get(kind)
        return None if known_kind is None else known_kind.types

    def __contains__(self, name: str) -> bool:
        return name in self._kinds

    def of(self, record: Object | Operation) -> Kind:
        """Return the kind of a stored record; raises if only other processes know it."""
        kind = self._kinds.get(record.kind)
        if kind is None:
            raise UnknownKind(record.kind)
        return kind

    def require_interference(self, operation: Operation, actor: str | None) -> None:
        """Refuse to cancel or signal an operation for an actor that the table does not allow to request it."""
        if actor is not None and not self.of(operation).can_interfere(operation, actor):
            raise NotYourOperation(operation.id, operation.action, operation.kind, actor)

    def unknown_words(self, record: Object, operation: Operation | None = None) -> list[str]:
        """Return what this process does not know of an object and an operation on it, as entries of the filter.

        Other processes have a plugin that this one lacks, or another version of it.
        """
        kind = self._kinds.get(record.kind)
        if kind is None:
            return [record.kind]
        if not record.spec.startswith(VERSION_STAMP) and _knows_states(kind.lifecycle, record, operation):
            return []
        return [word for word in filter_words(record, operation) if not _is_known(kind, word)]

    def require_known(self, record: Object, operation: Operation | None = None) -> None:
        """Raise if only other processes know the kind, the state or the version of an object."""
        for word in self.unknown_words(record, operation):
            raise UnknownVersion(record.kind, describe_word(word)) if " " in word else UnknownKind(word)

    def pass_over_unknown(self, pairs: Iterable[tuple[Object, Operation | None]]) -> None:
        """Leave work to others from now on if something about it is unknown; the store repeats the transaction.

        A process that knows everything never needs the filter, and so does not pay for it.
        """
        self._pass_over({word for record, operation in pairs for word in self.unknown_words(record, operation)})

    def pass_over_unknown_timers(self, pairs: Iterable[tuple[Object, Timer]]) -> None:
        """Leave timers to others from now on if their object or their event is unknown, as with work."""
        words: set[str] = set()
        for record, timer in pairs:
            words.update(self.unknown_words(record))
            if record.kind in self._kinds and not self._kinds[record.kind].lifecycle.has_event(timer.event):
                words.add(f"{record.kind} action {timer.event}")
        self._pass_over(words)

    def _pass_over(self, words: set[str]) -> None:
        covered = set(self.filter or ())
        new = sorted(word for word in words if (word not in covered if " " in word else self.filter is None))
        if new:
            known = ", ".join(map(describe_word, new))
            log.warning("this process does not know %s: it leaves the work to others", known)
            self.filter = (*(self.filter or self._kinds), *(word for word in new if " " in word))
            raise WriteConflict("it is repeated without what this process does not know")

    def disclosure(self, *, internal: bool) -> Disclosure:
        """Return the view of stored records for administrators (`internal`), or for all others."""
        return self._disclosures[internal]

    def require_states(self, kind: str | None, states: Collection[str], field: str = "state") -> None:
        """Refuse states that no object of a kind, or of any kind if none is given, can have.

        A kind that this process does not know may have any states.
        """
        if kind is not None and kind not in self._kinds:
            return
        kinds = self if kind is None else [self._kinds[kind]]
        known = {state.word for known_kind in kinds for state in known_kind.lifecycle.declaration.states}
        for state in states or ("",):
            if state not in known:
                raise UnknownValue(field, "state" if kind is None else f"state of {kind}", state, sorted(known))

    def lock_set(self, request: Request, record: Object | None) -> Iterable[Key]:
        """Return the objects that the guard of a request will read."""
        name = request.creates.kind if request.creates is not None else record.kind if record is not None else ""
        kind = self._kinds.get(name)
        return () if kind is None or kind.lock_set is None else kind.lock_set(request, record)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())


def filter_words(record: Object, operation: Operation | None = None) -> list[str]:
    """Return the entries of a filter that would pass over an object, or an operation on it (see `KindFilter`)."""
    version = f"version {spec_version_of(record.spec)}"
    states = (
        [record.state] if operation is None else [record.state, *(getattr(operation, name) for name in STATE_FIELDS)]
    )
    actions = [] if operation is None else [f"action {operation.action}"]
    return [f"{record.kind} {word}" for word in (version, *actions, *(f"state {state}" for state in states))]


def describe_word(word: str) -> str:
    """Return an entry of a filter as a text, such as `the state paused of app.vm`."""
    kind, _, rest = word.partition(" ")
    what, _, name = rest.partition(" ")
    if not rest:
        return f"the kind {kind}"
    return f"version {name} of the specs of {kind}" if what == "version" else f"the {what} {name} of {kind}"


def _is_known(kind: Kind, word: str) -> bool:
    _, what, name = word.split(" ", 2)
    if what == "version":
        return int(name) <= kind.spec_version
    return kind.lifecycle.has_state(name) if what == "state" else kind.lifecycle.has_event(name)


def _knows_states(lifecycle: Lifecycle, record: Object, operation: Operation | None) -> bool:
    has = lifecycle.has_state
    if operation is None:
        return has(record.state)
    states = (record.state, *(getattr(operation, name) for name in STATE_FIELDS))
    return all(map(has, states)) and lifecycle.has_event(operation.action)


async def run_end_hooks(uow: UnitOfWork, kinds: Kinds) -> None:
    """Run the end hooks of operations that have ended in this unit of work, until no further operation ends.

    So what an operation held besides its own object (such as a disk that is attached to a machine) is released in the
    same transaction, however the operation ended: by a report, cancelled, timed out, or fenced. The secrets in its
    arguments are masked there, too: nobody needs them any more.
    """
    while ended := uow.drain_ended():
        for end in ended:
            operation = uow.operations[Key(end.ns, end.op)]
            types = kinds.types(operation.kind)
            masked = operation.args if types is None else types.mask_args(operation.action, operation.args)
            if masked != operation.args:
                uow.changes.masked_args.append((operation.key, masked))
            on_end = kinds[operation.kind].on_end if kinds.any_end_hook else None
            if on_end is not None:
                try:
                    await on_end(uow, operation, end)
                except SystemExit as error:  # it would end the process
                    raise RuntimeError(f"the end hook of {operation.kind} has called sys.exit") from error
