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
from stateward.lifecycle.explore.network import EMPTY, Network
from stateward.lifecycle.explore.party import NETWORK, Message, Party, Step

WIDTH = 30
FIELD = (1 << WIDTH) - 1


class Way(Struct, frozen=True, gc=False):
    """One thing that can happen: what it adds to the world's number and to the network.

    It is `onward` when it may be counted on to happen; `doubled` is the same with the message heard still in flight.
    """

    text: str
    adds: int
    sent: int = EMPTY
    onward: bool = True
    breach: str | None = None
    doubled: Way | None = None


class Down(Struct, frozen=True):
    """A party that has crashed, as what is left of it."""

    left: Hashable

    def __str__(self) -> str:
        return f"down, left: {self.left}"


class Seat:
    """A party at its place in the world's number."""

    __slots__ = ("_acts", "_crashes", "_hears", "_heeds", "_numbers", "calls", "network", "party", "shift", "states")

    def __init__(self, party: Party[Any], place: int, network: Network) -> None:
        self.party = party
        self.network = network
        self.shift = WIDTH * place
        self.calls: Seat | None = None
        self.states: list[Hashable] = []
        self._numbers: dict[Hashable, int] = {}
        self._acts: dict[tuple[int, int], tuple[Way, ...]] = {}
        self._hears: dict[tuple[int, int], tuple[Way, ...]] = {}
        self._heeds: dict[tuple[int, int], int] = {}
        self._crashes: dict[int, tuple[Way, ...]] = {}

    def number(self, state: Hashable) -> int:
        """Return the number of a state, a new one if it was never seen."""
        number = self._numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
        return number

    def seen(self, own: int) -> Hashable:
        """Return the state of a number as others see it: of one that is down, what is left."""
        state = self.states[own]
        return state.left if isinstance(state, Down) else state

    def acts(self, own: int, other: int) -> tuple[Way, ...]:
        """Return what it may do by itself, while the party that it calls is in the other state."""
        ways = self._acts.get((own, other))
        if ways is None:
            ways = self._acts[own, other] = tuple(self._asked(own, other))
        return ways

    def hears(self, own: int, message: int) -> tuple[Way, ...]:
        """Return what a message may make of it."""
        ways = self._hears.get((own, message))
        if ways is None:
            ways = self._hears[own, message] = tuple(self._told(own, message))
        return ways

    def crashes(self, own: int) -> tuple[Way, ...]:
        """Return what a crash may leave of it."""
        if own not in self._crashes:
            self._crashes[own] = tuple(self._crashed(own))
        return self._crashes[own]

    def takes(self, own: int, caller: Way, word: Hashable) -> Iterator[Way]:
        """Walk over what a caller's step becomes together with what its word makes of this party."""
        state = self.states[own]
        for step in () if isinstance(state, Down) else self.party.hears(state, word):
            way = self._way(own, step, _line(f"{caller.text}; {self.party.name}", step.note), caller.onward)
            sent = self.network.of((*self.network.held(caller.sent), *step.sent))
            yield Way(way.text, caller.adds + way.adds, sent, caller.onward, caller.breach or way.breach)

    def heeds(self, own: int, flying: int) -> int:
        """Return what is in flight without the messages that can never matter to it again."""
        left = self._heeds.get((own, flying))
        if left is None:
            left = self._heeds[own, flying] = self.network.only(flying, lambda message: not self._moot(own, message))
        return left

    def _moot(self, own: int, message: Message) -> bool:
        asked = self.party.moot
        return asked is not None and message.to == self.party.name and asked(self.seen(own), message.body)

    def _asked(self, own: int, other: int) -> Iterator[Way]:
        state, name = self.states[own], self.party.name
        if isinstance(state, Down):
            for step in self.party.restart(state.left):
                yield self._way(own, step, _line(f"{name} restarts", step.note))
            return
        for step in self.party.acts(state):
            way = self._way(own, step, f"{name} {step.note}", not self.party.free)
            if step.says is None:
                yield way
            elif self.calls is None:
                raise BadInput("says", step.says, f"for {name}, who calls nobody")
            else:
                yield from self.calls.takes(other, way, step.says)

    def _told(self, own: int, message: int) -> Iterator[Way]:
        state, heard = self.states[own], self.network.messages[message]
        down, text = isinstance(state, Down), f"{self.party.name} hears {heard}"
        steps: Iterable[Step[Any]] = () if down else tuple(self.party.hears(state, heard.body))
        for step in steps:
            yield _doublable(self._way(own, step, _line(text, step.note)))
        if not steps:
            yield Way(_line(text, "is down" if down else "drops it"), 0)

    def _crashed(self, own: int) -> Iterator[Way]:
        state = self.states[own]
        if self.party.crash is not None and not isinstance(state, Down):
            for left in self.party.crash(state):
                yield Way(f"{self.party.name} crashes, left: {left}", self._adds(own, Down(left)), onward=False)

    def _way(self, own: int, step: Step[Any], text: str, onward: bool = True) -> Way:
        return Way(text, self._adds(own, step.state), self.network.of(step.sent), onward, step.breach)

    def _adds(self, own: int, state: Hashable) -> int:
        return (self.number(state) - own) << self.shift


def _doublable(way: Way) -> Way:
    """Add what else it would be if the message stayed in flight; where it changes nothing, nothing."""
    if not way.adds and not way.sent:
        return way
    return replace(way, doubled=replace(way, text=f"{way.text} ({NETWORK} doubled it)", onward=False))


def _line(start: str, note: str) -> str:
    return f"{start}: {note}" if note else start
