"""One party in the search: its states have numbers, and its transitions are cached.

The steps of a party depend on its own state and on the message that it receives. So its functions are called once for
each pair; after that, a step is a number that is added to the number of the world's state.
"""

# bounded by: one exploration
from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stateward.errors import BadInput
from stateward.testing.protocols.message_sets import EMPTY, MessageSets
from stateward.testing.protocols.protocol_model import NETWORK, ModelMessage, ModelParty, Step

WIDTH = 30
FIELD = (1 << WIDTH) - 1


class Transition(Struct, frozen=True, gc=False):
    """A possible step: what it adds to the number of the state and to the messages in flight.

    `is_progress`: the search may rely on it to happen. `doubled`: the same, with the received message still in flight.
    """

    text: str
    adds: int
    sent: int = EMPTY
    is_progress: bool = True
    breach: str | None = None
    doubled: Transition | None = None


class CrashedState(Struct, frozen=True):
    """The state of a crashed party: the durable part of its state."""

    left: Hashable

    def __str__(self) -> str:
        return f"down, left: {self.left}"


class PartyStates:
    """A party, its states, and the place of its number in the number of the world's state."""

    __slots__ = ("_acts", "_crashes", "_hears", "_heeds", "_numbers", "calls", "network", "party", "shift", "states")

    def __init__(self, party: ModelParty[Any], place: int, network: MessageSets) -> None:
        self.party = party
        self.network = network
        self.shift = WIDTH * place
        self.calls: PartyStates | None = None
        self.states: list[Hashable] = []
        self._numbers: dict[Hashable, int] = {}
        self._acts: dict[tuple[int, int], tuple[Transition, ...]] = {}
        self._hears: dict[tuple[int, int], tuple[Transition, ...]] = {}
        self._heeds: dict[tuple[int, int], int] = {}
        self._crashes: dict[int, tuple[Transition, ...]] = {}

    def number(self, state: Hashable) -> int:
        """Return the number of a state; a state that is seen for the first time gets a new number."""
        number = self._numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
        return number

    def seen(self, own: int) -> Hashable:
        """Return the state of a number as predicates see it: of a crashed party, what the crash left."""
        state = self.states[own]
        return state.left if isinstance(state, CrashedState) else state

    def own_transitions(self, own: int, other: int) -> tuple[Transition, ...]:
        """Return the steps of the party by itself, while the party that it calls is in the other state."""
        ways = self._acts.get((own, other))
        if ways is None:
            ways = self._acts[own, other] = tuple(self._own_transitions(own, other))
        return ways

    def transitions_on_message(self, own: int, message: int) -> tuple[Transition, ...]:
        """Return the steps on a message."""
        ways = self._hears.get((own, message))
        if ways is None:
            ways = self._hears[own, message] = tuple(self._on_message(own, message))
        return ways

    def crash_transitions(self, own: int) -> tuple[Transition, ...]:
        """Return the possible crashes."""
        if own not in self._crashes:
            self._crashes[own] = tuple(self._crashed(own))
        return self._crashes[own]

    def transitions_on_call(self, own: int, caller: Transition, word: Hashable) -> Iterator[Transition]:
        """Yield the steps of a caller combined with the steps of this party on the call."""
        state = self.states[own]
        for step in () if isinstance(state, CrashedState) else self.party.receive(state, word):
            way = self._transition(own, step, _line(f"{caller.text}; {self.party.name}", step.note), caller.is_progress)
            sent = self.network.of((*self.network.held(caller.sent), *step.sent))
            yield Transition(way.text, caller.adds + way.adds, sent, caller.is_progress, caller.breach or way.breach)

    def without_moot(self, own: int, flying: int) -> int:
        """Return the messages in flight without those that can never matter to this party again."""
        left = self._heeds.get((own, flying))
        if left is None:
            left = self._heeds[own, flying] = self.network.only(flying, lambda message: not self._moot(own, message))
        return left

    def _moot(self, own: int, message: ModelMessage) -> bool:
        is_moot = self.party.moot
        return is_moot is not None and message.to == self.party.name and is_moot(self.seen(own), message.body)

    def _own_transitions(self, own: int, other: int) -> Iterator[Transition]:
        state, name = self.states[own], self.party.name
        if isinstance(state, CrashedState):
            for step in self.party.restart(state.left):
                yield self._transition(own, step, _line(f"{name} restarts", step.note))
            return
        for step in self.party.act(state):
            way = self._transition(own, step, f"{name} {step.note}", not self.party.free)
            if step.call_argument is None:
                yield way
            elif self.calls is None:
                raise BadInput("says", step.call_argument, f"left out: {name} calls nobody")
            else:
                yield from self.calls.transitions_on_call(other, way, step.call_argument)

    def _on_message(self, own: int, message: int) -> Iterator[Transition]:
        state, heard = self.states[own], self.network.messages[message]
        down, text = isinstance(state, CrashedState), f"{self.party.name} hears {heard}"
        steps: Iterable[Step[Any]] = () if down else tuple(self.party.receive(state, heard.body))
        for step in steps:
            yield _doublable(self._transition(own, step, _line(text, step.note)))
        if not steps:
            yield Transition(_line(text, "is down" if down else "drops it"), 0)

    def _crashed(self, own: int) -> Iterator[Transition]:
        state = self.states[own]
        if self.party.crash is not None and not isinstance(state, CrashedState):
            for left in self.party.crash(state):
                yield Transition(
                    f"{self.party.name} crashes, left: {left}", self._adds(own, CrashedState(left)), is_progress=False
                )

    def _transition(self, own: int, step: Step[Any], text: str, is_progress: bool = True) -> Transition:
        return Transition(text, self._adds(own, step.state), self.network.of(step.sent), is_progress, step.breach)

    def _adds(self, own: int, state: Hashable) -> int:
        return (self.number(state) - own) << self.shift


def _doublable(way: Transition) -> Transition:
    """Add the variant in which the message stays in flight, if the step changes anything."""
    if not way.adds and not way.sent:
        return way
    return replace(way, doubled=replace(way, text=f"{way.text} ({NETWORK} doubled it)", is_progress=False))


def _line(start: str, note: str) -> str:
    return f"{start}: {note}" if note else start
