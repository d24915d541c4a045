"""The decorator `@performs(LIFECYCLE, "start")`: a plain function as the work of an action.

The server does not use it. It is for users who embed a lifecycle in a program of their own, and for `lease_status`.

A function that starts, updates or ends something must check the state before it, mark it while it works, and leave a
truthful state behind however it ends. Written by hand, one of these is forgotten sooner or later. Here the move before
the function and the one after it both come from the lifecycle's table, by `decide`.

What the object is kept in is the holder's business: it reads the state, and it compares and sets. Each change is made
from the state that it was decided on, so of two callers one wins, and a result that comes after the object was taken
over (or is gone) changes nothing. A holder is made anew for each call: one over a versioned record remembers the
version that it wrote, and so tells its own work from a later one of the same name.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import wraps
from inspect import isasyncgenfunction, isawaitable, iscoroutinefunction, isgeneratorfunction
from threading import Lock
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from msgspec import Struct

from stateward.errors import BadInput, StatewardError, UnknownName
from stateward.lifecycle.actors import USER, WORKER, Actor, Actors
from stateward.lifecycle.decide import decide
from stateward.lifecycle.moves import NO_FACTS, Move, Refusal, RefusalCode
from stateward.lifecycle.rows import CANCELLED, FAILED, SUCCEEDED, Meaning
from stateward.lifecycle.states import FINAL, GONE, State
from stateward.lifecycle.table import Lifecycle

P = ParamSpec("P")
R = TypeVar("R")

WRONG_INPUT: tuple[type[BaseException], ...] = (BadInput, UnknownName)
"""What says that the request was wrong, and nothing was done: never fatal."""

ATTEMPTS = 16
"""How often a caller tries again whose state changed under its hands into another that allows the same."""


class ActionRefused(StatewardError):
    """A function was not run because its move may not be made; carries the refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal
        self.retry = refusal.reason is RefusalCode.IN_TRANSITION

    def __str__(self) -> str:
        return str(self.refusal)


class Contended(StatewardError, retry=True):
    """A function was not run because others changed the state faster than this caller could."""

    kind: str
    event: str
    attempts: int
    text = "{event!r} gave up: the state of the {kind} changed {attempts} times meanwhile"


class StateHolder(Protocol):
    """Where an object's state is kept."""

    def read(self) -> str | None:
        """Return the state, or None when the object is gone."""

    def compare_and_set(self, expected: State, new: State) -> bool:
        """Set the state if it is the expected one, as one step; tell whether it was."""


class AsyncStateHolder(Protocol):
    """Where an object's state is kept, when asking takes time; for functions that are asynchronous themselves."""

    def read(self) -> Awaitable[str | None]:
        """Return the state, or None when the object is gone."""

    def compare_and_set(self, expected: State, new: State) -> Awaitable[bool]:
        """Set the state if it is the expected one, as one step; tell whether it was."""


class AttributeHolder:
    """A holder over an object that has its state as an attribute, `state` or `status` unless another is named.

    Where the object also has a number in the attribute `epoch` names, every change raises it, and what another has
    changed since is known even if the state reads the same again.
    """

    _one_at_a_time = Lock()

    def __init__(self, subject: object, attribute: str | None = None, epoch: str | None = None) -> None:
        chosen = attribute or next((name for name in ("state", "status") if hasattr(subject, name)), None)
        if chosen is None:
            raise BadInput("holder", subject, "an object with a state or a status")
        self._subject = subject
        self._attribute = chosen
        self._epoch = epoch
        self._written: int | None = None

    def read(self) -> str | None:
        """Return the state, or None when the object is gone."""
        state: str | None = getattr(self._subject, self._attribute)
        return None if state == GONE else state

    def compare_and_set(self, expected: State, new: State) -> bool:
        """Set the state if it is the expected one and nobody has changed it since this holder did."""
        with self._one_at_a_time:
            if self.read() != expected or self._written not in (None, self._number()):
                return False
            setattr(self._subject, self._attribute, new)
            number = self._number()
            if self._epoch is not None and number is not None:
                self._written = number + 1
                setattr(self._subject, self._epoch, self._written)
        return True

    def _number(self) -> int | None:
        return None if self._epoch is None else int(getattr(self._subject, self._epoch))


def first_argument(*arguments: object, **named: object) -> AttributeHolder:
    """Find the state on the first argument of the call: the object that a method belongs to, or that is passed."""
    return AttributeHolder(next(iter((*arguments, *named.values())), None))


def always_succeeded(_holder: object, _move: Move) -> str:
    """Judge that work which raised nothing has succeeded."""
    return SUCCEEDED


class DecoratedAction(Struct, frozen=True):
    """What a decorated function performs: which event, by whom, on what, and how its end is judged."""

    lifecycle: Lifecycle
    event: str
    actor: Actor
    facts: frozenset[str]
    non_fatal: tuple[type[BaseException], ...]
    holder: Callable[..., Any]
    judge: Callable[[Any, Move], Any]

    def begins(self, state: str | None) -> Move:
        """Return the move with which the work begins, or raise the refusal."""
        decision = self._gone() if state is None else decide(self.lifecycle, state, self.event, self.actor, self.facts)
        if isinstance(decision, Refusal):
            raise ActionRefused(decision)
        return decision

    def ends(self, begun: Move, event: str) -> State:
        """Return the state in which the work ends; what cannot be undone, for want of a state to return to, failed."""
        decision = decide(self.lifecycle, begun.target, event, WORKER, origin=begun.source)
        if isinstance(decision, Refusal):
            decision = decide(self.lifecycle, begun.target, FAILED, WORKER, origin=begun.source)
        if isinstance(decision, Refusal):
            raise ActionRefused(decision)
        return decision.target

    def ends_raising(self, begun: Move, error: BaseException) -> State:
        """Return the state in which the work ends that raised an error."""
        return self.ends(begun, CANCELLED if isinstance(error, self.non_fatal) else FAILED)

    def contended(self) -> Contended:
        """Make the error of a caller that never got its turn."""
        return Contended(self.lifecycle.kind, self.event, ATTEMPTS)

    def _gone(self) -> Refusal:
        return Refusal(
            kind=self.lifecycle.kind,
            state=GONE,
            state_class=FINAL,
            event=self.event,
            actor=self.actor,
            reason=RefusalCode.FINAL_STATE,
            allowed=(),
            may=Actors(),
            missing=(),
            sources=self.lifecycle.sources(self.event),
        )


def performs(
    lifecycle: Lifecycle,
    event: str,
    *,
    actor: Actor = USER,
    facts: frozenset[str] = NO_FACTS,
    non_fatal: Iterable[type[BaseException]] = (),
    holder: Callable[..., StateHolder | AsyncStateHolder] = first_argument,
    judge: Callable[[Any, Move], str | Awaitable[str]] = always_succeeded,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function the work of an action: the state is checked and moved before it, and settled after it.

    An error that is `non_fatal` (and any that says the input was wrong) puts the state back; every other one makes it
    the action's error state. `holder` finds the state from the call's arguments. `judge` names the ending of work that
    raised nothing. A function whose move is refused is not run: `Refused` is raised.
    """
    _known(lifecycle, event, actor)
    performance = DecoratedAction(lifecycle, event, actor, facts, (*WRONG_INPUT, *non_fatal), holder, judge)

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        if isgeneratorfunction(function) or isasyncgenfunction(function):
            raise BadInput("function", function, "a function that has done its work when it returns")
        if iscoroutinefunction(function):
            return cast("Callable[P, R]", _performed_async(performance, function))
        return _performed(performance, function)

    return decorated


def _known(lifecycle: Lifecycle, event: str, actor: Actor) -> None:
    """Refuse at the declaration what could only ever be refused at the call, or would have no end."""
    lifecycle.sources(event)
    if actor not in lifecycle.actors:
        raise UnknownName(f"actor of {lifecycle.kind}", actor, lifecycle.actors)
    mine = {move.meaning for move in lifecycle.every_move() if (move.event, move.actor) == (event, actor)}
    if mine != {Meaning.ACTION}:
        raise BadInput("event", event, f"an action on {lifecycle.kind} that the {actor} may begin")


def _performed(performance: DecoratedAction, function: Callable[P, R]) -> Callable[P, R]:
    @wraps(function)
    def performed(*arguments: P.args, **named: P.kwargs) -> R:
        holder: StateHolder = performance.holder(*arguments, **named)
        begun = _begun(performance, holder)
        try:
            result = function(*arguments, **named)
            end = performance.ends(begun, performance.judge(holder, begun))
        except BaseException as error:
            holder.compare_and_set(begun.target, performance.ends_raising(begun, error))
            raise
        holder.compare_and_set(begun.target, end)
        return result

    return performed


def _begun(performance: DecoratedAction, holder: StateHolder) -> Move:
    for _ in range(ATTEMPTS):
        move = performance.begins(holder.read())
        if holder.compare_and_set(move.source, move.target):
            return move
    raise performance.contended()


def _performed_async(
    performance: DecoratedAction, function: Callable[P, Coroutine[Any, Any, R]]
) -> Callable[P, Coroutine[Any, Any, R]]:
    @wraps(function)
    async def performed(*arguments: P.args, **named: P.kwargs) -> R:
        holder: StateHolder | AsyncStateHolder = performance.holder(*arguments, **named)
        begun = await _begun_async(performance, holder)
        try:
            result = await function(*arguments, **named)
            end = performance.ends(begun, await _settled(performance.judge(holder, begun)))
        except BaseException as error:
            await _settled(holder.compare_and_set(begun.target, performance.ends_raising(begun, error)))
            raise
        await _settled(holder.compare_and_set(begun.target, end))
        return result

    return performed


async def _begun_async(performance: DecoratedAction, holder: StateHolder | AsyncStateHolder) -> Move:
    for _ in range(ATTEMPTS):
        move = performance.begins(await _settled(holder.read()))
        if await _settled(holder.compare_and_set(move.source, move.target)):
            return move
    raise performance.contended()


async def _settled(value: Awaitable[R] | R) -> R:
    return await value if isawaitable(value) else value
