"""The state space of a protocol: each state of the world is one integer, and a step adds a number to it.

A search over a million states needs cheap states. The states of parties and the multisets of messages recur, so each
gets a number when it is first seen. The state of the world has these numbers side by side in one integer: the network
lowest, then the parties (together the core), then the remaining budgets of faults. The possible steps depend on the
core alone, except for the faults that the budgets still allow. So they are computed once per core, as numbers to add.
"""

# bounded by: one exploration
from collections.abc import Iterator

from msgspec import Struct

from stateward.errors import BadInput, UnknownName
from stateward.testing.protocols.message_sets import EMPTY, FULL, MessageSets
from stateward.testing.protocols.party_states import FIELD, WIDTH, CrashedState, PartyStates, Transition
from stateward.testing.protocols.protocol_model import NETWORK, Bounds, FaultBudget, Predicate, Protocol

BUDGET_WIDTH = 8
BUDGET = (1 << BUDGET_WIDTH) - 1
FREE = 0


class Exits(Struct, frozen=True, gc=False):
    """The possible steps in a core: the number that each one adds, and for a fault the budget that it needs.

    `cut`: some step was left out because too many messages would be in flight. `cut_faults` are the budgets of the
    faults that were left out for this reason.
    """

    ways: tuple[tuple[int, Transition], ...]
    faults: tuple[tuple[int, int, Transition], ...]
    cut: bool
    cut_faults: int


class StateSpace:
    """The states of a protocol as numbers: the initial one, and the steps from any of them."""

    def __init__(self, protocol: Protocol, faults: FaultBudget, bounds: Bounds) -> None:
        self.network = MessageSets(bounds)
        self.faults = faults
        self.parties = tuple(
            PartyStates(party, place, self.network) for place, party in enumerate(protocol.parties, start=1)
        )
        self.by_name = {slot.party.name: slot for slot in self.parties}
        for slot in self.parties:
            slot.calls = self.party(slot.party.calls) if slot.party.calls is not None else None
        self.core = (1 << WIDTH * (len(self.parties) + 1)) - 1
        self.start = sum(slot.number(slot.party.start) << slot.shift for slot in self.parties) + self._budgets()
        self._exits: dict[int, Exits] = {}
        self._receivers: dict[int, PartyStates] = {}
        self._lost: dict[int, Transition] = {}
        self._choosy = tuple(slot for slot in self.parties if slot.party.moot is not None)

    def party(self, name: str) -> PartyStates:
        """Return the party of a name, or raise with the names that exist."""
        try:
            return self.by_name[name]
        except KeyError:
            raise UnknownName("party", name, self.by_name) from None

    def _budgets(self) -> int:
        """Assign each budget its place above the core, and return the number of all full budgets."""
        faults, unit = self.faults, self.core + 1
        self._losing, self._doubling = unit, unit << BUDGET_WIDTH
        full = self._losing * _small("losses", faults.losses) + self._doubling * _small("duplicates", faults.duplicates)
        self._crashing: list[tuple[PartyStates, int]] = []
        for nth, (name, crashes) in enumerate(faults.crashes.items(), start=2):
            self._crashing.append((self.party(name), unit << BUDGET_WIDTH * nth))
            full += self._crashing[-1][1] * _small("crashes", crashes)
        return full

    def exits(self, state: int) -> Exits:
        """Return the steps of a state, including faults that its budgets no longer allow."""
        core = state & self.core
        known = self._exits.get(core)
        if known is None:
            steps = [*self._by_themselves(core), *self._by_messages(core), *self._by_crashes(core)]
            fitting = [(unit, self._tidy(core + adds) - core, way) for unit, adds, way in steps if adds is not None]
            cut = {unit for unit, adds, _ in steps if adds is None}
            known = self._exits[core] = Exits(
                tuple((adds, way) for unit, adds, way in fitting if unit == FREE),
                tuple((unit * BUDGET, adds - unit, way) for unit, adds, way in fitting if unit != FREE),
                FREE in cut,
                sum(unit * BUDGET for unit in cut),
            )
        return known

    def transitions(self, state: int) -> list[tuple[int, Transition]]:
        """Return all steps from a state, each with the state that it leads to."""
        exits = self.exits(state)
        transitions = [(state + adds, way) for adds, way in exits.ways]
        if state > self.core:
            transitions += [(state + adds, way) for budget, adds, way in exits.faults if state & budget]
        return transitions

    def _by_themselves(self, core: int) -> Iterator[tuple[int, int | None, Transition]]:
        for slot in self.parties:
            other = core >> slot.calls.shift & FIELD if slot.calls is not None else 0
            for way in slot.own_transitions(core >> slot.shift & FIELD, other):
                yield FREE, self._adds(core & FIELD, core & FIELD, way), way

    def _by_messages(self, core: int) -> Iterator[tuple[int, int | None, Transition]]:
        flying, faults = core & FIELD, self.faults
        for message, left in self.network.takes(flying):
            slot = self._receiver(message)
            for way in slot.transitions_on_message(core >> slot.shift & FIELD, message):
                yield FREE, self._adds(flying, left, way), way
                if faults.duplicates and way.doubled is not None:
                    yield self._doubling, self._adds(flying, flying, way.doubled), way.doubled
            if faults.losses and not faults.spared(self.network.messages[message]):
                if message not in self._lost:
                    what = self.network.messages[message]
                    self._lost[message] = Transition(f"{NETWORK} loses {what} to {what.to}", 0, is_progress=False)
                yield self._losing, left - flying, self._lost[message]

    def _by_crashes(self, core: int) -> Iterator[tuple[int, int | None, Transition]]:
        for slot, unit in self._crashing:
            for way in slot.crash_transitions(core >> slot.shift & FIELD):
                yield unit, way.adds, way

    def _adds(self, before: int, flying: int, way: Transition) -> int | None:
        after = flying if way.sent == EMPTY else self.network.plus(flying, way.sent)
        return None if after == FULL else way.adds + after - before

    def _tidy(self, core: int) -> int:
        """Remove the messages in flight that are moot."""
        flying = left = core & FIELD
        for slot in self._choosy:
            left = slot.without_moot(core >> slot.shift & FIELD, left)
        return core - flying + left

    def _receiver(self, message: int) -> PartyStates:
        receiver = self._receivers.get(message)
        if receiver is None:
            receiver = self._receivers[message] = self.party(self.network.messages[message].to)
        return receiver

    def shifts(self, claim: Predicate) -> tuple[int, ...]:
        """Return the places of a predicate's subjects in the number of a state."""
        return tuple(0 if name == NETWORK else self.party(name).shift for name in claim.of)

    def holds(self, claim: Predicate, numbers: tuple[int, ...]) -> bool:
        """Return whether a predicate holds for the subjects with these numbers."""
        return claim.holds(*(self._subject(name, number) for name, number in zip(claim.of, numbers, strict=True)))

    def _subject(self, name: str, number: int) -> object:
        return self.network.held(number) if name == NETWORK else self.party(name).seen(number)

    def anybody_down(self, state: int) -> bool:
        """Return whether a party has crashed and not restarted yet."""
        return any(isinstance(self._stands(slot, state), CrashedState) for slot, _ in self._crashing)

    def describe(self, state: int) -> tuple[str, ...]:
        """Return one line for each party, and one for the messages in flight."""
        lines = [f"{slot.party.name}: {self._stands(slot, state)}" for slot in self.parties]
        flying = ", ".join(f"{message} to {message.to}" for message in self.network.held(state & FIELD))
        return (*lines, f"{NETWORK}: {flying or 'nothing in flight'}")

    def _stands(self, slot: PartyStates, state: int) -> object:
        return slot.states[state >> slot.shift & FIELD]


def _small(field: str, budget: int) -> int:
    if not 0 <= budget <= BUDGET:
        raise BadInput(field, budget, f"a number from 0 to {BUDGET}")
    return budget
