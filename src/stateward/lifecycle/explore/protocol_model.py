"""The words a protocol is declared in: parties, their steps and messages, and what is claimed of them.

A party is its state and four pure functions: what it may do by itself, what a message makes it do, what a crash leaves
of it, and how it starts again. Each function returns all that could happen, so a choice (the work succeeds, or fails)
is several steps. States and messages are any hashable values; their `str` is what a trace shows.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct

S = TypeVar("S", bound=Hashable)

NETWORK = "network"
"""The name under which a claim looks at the messages in flight."""


class ModelMessage(Struct, frozen=True):
    """Something said to a party over the network: it may be lost, doubled, overtaken and late."""

    to: str
    body: Hashable

    def __str__(self) -> str:
        return f"{self.body}"


class Step(Struct, Generic[S], frozen=True):
    """One thing that a party may do: what becomes of it, and what it says.

    `sent` goes over the network. `says` goes straight to the party that this one `calls`, as a part of the same step; a
    step whose word is not taken cannot be made. A `breach` names a rule that the step itself breaks.
    """

    state: S
    note: str = ""
    sent: tuple[ModelMessage, ...] = ()
    call_argument: Hashable | None = None
    breach: str | None = None


def _idle(_: Any) -> Iterable[Step[Any]]:  # noqa: ANN401
    return ()


def _drop_message(_: Any, __: Any) -> Iterable[Step[Any]]:  # noqa: ANN401
    return ()


def _as_left(state: Any) -> Iterable[Step[Any]]:  # noqa: ANN401
    return (Step(state),)


class ModelParty(Struct, Generic[S], frozen=True):
    """Somebody who takes part: where it starts, and what can become of it.

    `hears` returning nothing means that a message is dropped, or that a direct word is not taken. `crash` returns what
    may be left, durable things only; a party without it never crashes. What a `free` party does by itself is never
    waited for: a state that only it could end counts as stuck. A message that is `moot` to a party can never matter to
    it again, whatever happens, and is forgotten at once: that keeps the search small where stale words are refused.
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
    """Something said of the states of some parties; `holds` gets them in the order of `of`.

    A party that is down is seen as what its crash left; `NETWORK` stands for the tuple of messages in flight.
    """

    name: str
    of: tuple[str, ...]
    holds: Callable[..., bool]


class Protocol(Struct, frozen=True):
    """The parties, what must hold in every state, and the states in which everybody may stay for good."""

    parties: tuple[ModelParty[Any], ...]
    rest: Predicate
    invariants: tuple[Predicate, ...] = ()


class FaultBudget(Struct, frozen=True):
    """How much may go wrong in a run; a doubled message is heard and stays in flight, a `spared` one is never lost."""

    losses: int = 0
    duplicates: int = 0
    crashes: Mapping[str, int] = {}
    spared: Callable[[ModelMessage], bool] = lambda _: False


class Bounds(Struct, frozen=True):
    """How far to look. Where a bound but `copies` cuts something off, the exploration is not complete.

    Of the same message at most `copies` are in flight: a further one is dropped, as a network may. That keeps parties
    that send again and again finite.
    """

    states: int = 2_000_000
    depth: int = 10_000
    in_flight: int = 12
    copies: int = 2
