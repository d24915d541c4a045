"""The declaration of a protocol: parties, their steps and messages, and the predicates that must hold.

A party has a state and four pure functions: its own steps, its steps on a message, the states that a crash may leave,
and its steps at a restart. Each function returns all possibilities, so that a choice (the work succeeds, or fails) is
several steps. States and messages are any hashable values; a trace shows their `str`.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct

S = TypeVar("S", bound=Hashable)

NETWORK = "network"
"""The name by which a predicate refers to the messages in flight."""


class ModelMessage(Struct, frozen=True):
    """A message to a party over the network, which may lose, duplicate, reorder and delay it."""

    to: str
    body: Hashable

    def __str__(self) -> str:
        return f"{self.body}"


class Step(Struct, Generic[S], frozen=True):
    """A possible step of a party: its next state, and the messages that it sends.

    `sent` goes over the network. `call_argument` goes directly to the party that this one `calls`, as a part of the
    same step; if that party has no step on it, this step is not possible. A `breach` names a rule that the step breaks.
    """

    state: S
    note: str = ""
    sent: tuple[ModelMessage, ...] = ()
    call_argument: Hashable | None = None
    breach: str | None = None


def _idle(_: Any) -> Iterable[Step[Any]]:
    return ()


def _drop_message(_: Any, __: Any) -> Iterable[Step[Any]]:
    return ()


def _as_left(state: Any) -> Iterable[Step[Any]]:
    return (Step(state),)


class ModelParty(Struct, Generic[S], frozen=True):
    """A party of a protocol: its initial state and its functions.

    If `receive` returns nothing, the message is dropped, or the call is not possible. `crash` returns the states that
    may be left, with durable parts only; a party without it never crashes. The own steps of a `free` party are never
    relied on: a state that only such a step could end counts as stuck. A message that is `moot` can never matter to the
    party again and is removed at once, which keeps the search small where stale messages are refused.
    """

    name: str
    start: S
    act: Callable[[S], Iterable[Step[S]]] = _idle
    receive: Callable[[S, Any], Iterable[Step[S]]] = _drop_message
    crash: Callable[[S], Iterable[S]] | None = None
    restart: Callable[[S], Iterable[Step[S]]] = _as_left
    calls: str | None = None
    free: bool = False
    moot: Callable[[S, Any], bool] | None = None


class Predicate(Struct, frozen=True):
    """A condition on the states of some parties; `holds` gets the states in the order of `of`.

    The state of a crashed party is what its crash left; `NETWORK` stands for the tuple of messages in flight.
    """

    name: str
    of: tuple[str, ...]
    holds: Callable[..., bool]


class Protocol(Struct, frozen=True):
    """The parties, the invariants of every state, and the condition of the states in which the protocol may end."""

    parties: tuple[ModelParty[Any], ...]
    rest: Predicate
    invariants: tuple[Predicate, ...] = ()


class FaultBudget(Struct, frozen=True):
    """The most faults in a run. A duplicated message is received and stays in flight; a `spared` one is never lost."""

    losses: int = 0
    duplicates: int = 0
    crashes: Mapping[str, int] = {}
    spared: Callable[[ModelMessage], bool] = lambda _: False


class Bounds(Struct, frozen=True):
    """The limits of the search. If a limit other than `copies` cuts something off, the exploration is not complete.

    At most `copies` of one message are in flight: a further copy is dropped, as a network may do. That keeps the states
    of parties that send repeatedly finite.
    """

    states: int = 2_000_000
    depth: int = 10_000
    in_flight: int = 12
    copies: int = 2
