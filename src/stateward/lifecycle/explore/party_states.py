"""One party in the search: its states numbered, its answers remembered.

What a party does depends on its own state and on what it hears, so it is asked once per pair; from then on a step of it
is a number to be added.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stateward.errors import BadInput
from stateward.lifecycle.explore.message_sets import EMPTY, MessageSets
from stateward.lifecycle.explore.protocol_model import NETWORK, ModelMessage, ModelParty, Step

WIDTH = 30
FIELD = (1 << WIDTH) - 1


class Transition(Struct, frozen=True, gc=False):
    """One thing that can happen: what it adds to the number of the state and to the messages in flight.

    `is_progress`: the search may rely on it to happen. `doubled`: the same, with the received message still in flight.
    """

    text: str
    adds: int
    sent: int = EMPTY
    is_progress: bool = True
    breach: str | None = None
    doubled: Transition | None = None


class CrashedState(Struct, frozen=True):
    """A party that has crashed, as what is left of it."""

    left: Hashable

    def __str__(self) -> str:
        return f"down, left: {self.left}"


class PartyStates:
    """A party at its place in the world's number."""

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
        """Return the number of a state, a new one if it was never seen."""
        number = self._numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
        return number

    def seen(self, own: int) -> Hashable:
        """Return the state of a number as others see it: of one that is down, what is left."""
        state = self.states[own]
        return state.left if isinstance(state, CrashedState) else state

    def own_transitions(self, own: int, other: int) -> tuple[Transition, ...]:
        """Return what it may do by itself, while the party that it calls is in the other state."""
        ways = self._acts.get((own, other))
        if ways is None:
            ways = self._acts[own, other] = tuple(self._asked(own, other))
        return ways

    def transitions_on_message(self, own: int, message: int) -> tuple[Transition, ...]:
        """Return what a message may make of it."""
        ways = self._hears.get((own, message))
        if ways is None:
            ways = self._hears[own, message] = tuple(self._told(own, message))
        return ways

    def crash_transitions(self, own: int) -> tuple[Transition, ...]:
        """Return what a crash may leave of it."""
        if own not in self._crashes:
            self._crashes[own] = tuple(self._crashed(own))
        return self._crashes[own]

    def transitions_on_call(self, own: int, caller: Transition, word: Hashable) -> Iterator[Transition]:
        """Walk over what a caller's step becomes together with what its word makes of this party."""
        state = self.states[own]
        for step in () if isinstance(state, CrashedState) else self.party.receive(state, word):
            way = self._transition(own, step, _line(f"{caller.text}; {self.party.name}", step.note), caller.is_progress)
            sent = self.network.of((*self.network.held(caller.sent), *step.sent))
            yield Transition(way.text, caller.adds + way.adds, sent, caller.is_progress, caller.breach or way.breach)

    def without_moot(self, own: int, flying: int) -> int:
        """Return what is in flight without the messages that can never matter to it again."""
        left = self._heeds.get((own, flying))
        if left is None:
            left = self._heeds[own, flying] = self.network.only(flying, lambda message: not self._moot(own, message))
        return left

    def _moot(self, own: int, message: ModelMessage) -> bool:
        asked = self.party.moot
        return asked is not None and message.to == self.party.name and asked(self.seen(own), message.body)

    def _asked(self, own: int, other: int) -> Iterator[Transition]:
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

    def _told(self, own: int, message: int) -> Iterator[Transition]:
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
    """Add what else it would be if the message stayed in flight; where it changes nothing, nothing."""
    if not way.adds and not way.sent:
        return way
    return replace(way, doubled=replace(way, text=f"{way.text} ({NETWORK} doubled it)", is_progress=False))


def _line(start: str, note: str) -> str:
    return f"{start}: {note}" if note else start
