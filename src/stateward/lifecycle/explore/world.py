"""The whole of a protocol in one number, and all that can happen to it.

A search over a million states lives from cheap states. Each party's state and each multiset of messages is met again
and again, so they are numbered when first seen, and the state of the world is these numbers side by side in one
integer: the network lowest, then the parties (together the core), then what is left of the budgets of faults. What can
happen depends on the core alone, but for the faults that the budgets still allow. So it is worked out once per core, as
numbers to be added.
"""

from collections.abc import Iterator

from msgspec import Struct

from stateward.errors import BadInput, UnknownName
from stateward.lifecycle.explore.network import EMPTY, FULL, Network
from stateward.lifecycle.explore.party import NETWORK, Bounds, Claim, Faults, Protocol
from stateward.lifecycle.explore.seat import FIELD, WIDTH, Down, Seat, Way

BUDGET_WIDTH = 8
BUDGET = (1 << BUDGET_WIDTH) - 1
FREE = 0


class Exits(Struct, frozen=True, gc=False):
    """What can happen in a core: what each way adds to the number, and for a fault which budget it needs.

    `cut` says that the network had no room for some way; `cut_faults` are the budgets of the faults it had none for.
    """

    ways: tuple[tuple[int, Way], ...]
    faults: tuple[tuple[int, int, Way], ...]
    cut: bool
    cut_faults: int


class World:
    """A protocol made ready for the search: the number it starts with, and the ways on from any number."""

    def __init__(self, protocol: Protocol, faults: Faults, bounds: Bounds) -> None:
        self.network = Network(bounds)
        self.faults = faults
        self.seats = tuple(Seat(party, place, self.network) for place, party in enumerate(protocol.parties, start=1))
        self.by_name = {seat.party.name: seat for seat in self.seats}
        for seat in self.seats:
            seat.calls = self.seat(seat.party.calls) if seat.party.calls is not None else None
        self.core = (1 << WIDTH * (len(self.seats) + 1)) - 1
        self.start = sum(seat.number(seat.party.start) << seat.shift for seat in self.seats) + self._budgets()
        self._exits: dict[int, Exits] = {}
        self._receivers: dict[int, Seat] = {}
        self._lost: dict[int, Way] = {}
        self._choosy = tuple(seat for seat in self.seats if seat.party.moot is not None)

    def seat(self, name: str) -> Seat:
        """Return the party of a name, or raise with the names that exist."""
        try:
            return self.by_name[name]
        except KeyError:
            raise UnknownName("party", name, self.by_name) from None

    def _budgets(self) -> int:
        """Give each budget its place above the core, and return them all full."""
        faults, unit = self.faults, self.core + 1
        self._losing, self._doubling = unit, unit << BUDGET_WIDTH
        full = self._losing * _small("losses", faults.losses) + self._doubling * _small("duplicates", faults.duplicates)
        self._crashing: list[tuple[Seat, int]] = []
        for nth, (name, crashes) in enumerate(faults.crashes.items(), start=2):
            self._crashing.append((self.seat(name), unit << BUDGET_WIDTH * nth))
            full += self._crashing[-1][1] * _small("crashes", crashes)
        return full

    def exits(self, state: int) -> Exits:
        """Return what can happen in a state, faults that its budgets no longer allow included."""
        core = state & self.core
        known = self._exits.get(core)
        if known is None:
            known = self._exits[core] = self._worked_out(core)
        return known

    def ways(self, state: int) -> list[tuple[int, Way]]:
        """Return every way on from a state, with the state it leads to."""
        exits = self.exits(state)
        found = [(state + adds, way) for adds, way in exits.ways]
        if state > self.core:
            found += [(state + adds, way) for budget, adds, way in exits.faults if state & budget]
        return found

    def _worked_out(self, core: int) -> Exits:
        found = [*self._by_themselves(core), *self._by_messages(core), *self._by_crashes(core)]
        fitting = [(unit, self._tidy(core + adds) - core, way) for unit, adds, way in found if adds is not None]
        cut = {unit for unit, adds, _ in found if adds is None}
        return Exits(
            tuple((adds, way) for unit, adds, way in fitting if unit == FREE),
            tuple((unit * BUDGET, adds - unit, way) for unit, adds, way in fitting if unit != FREE),
            FREE in cut,
            sum(unit * BUDGET for unit in cut),
        )

    def _by_themselves(self, core: int) -> Iterator[tuple[int, int | None, Way]]:
        for seat in self.seats:
            other = core >> seat.calls.shift & FIELD if seat.calls is not None else 0
            for way in seat.acts(core >> seat.shift & FIELD, other):
                yield FREE, self._adds(core & FIELD, core & FIELD, way), way

    def _by_messages(self, core: int) -> Iterator[tuple[int, int | None, Way]]:
        flying, faults = core & FIELD, self.faults
        for message, left in self.network.takes(flying):
            seat = self._receiver(message)
            for way in seat.hears(core >> seat.shift & FIELD, message):
                yield FREE, self._adds(flying, left, way), way
                if faults.duplicates and way.doubled is not None:
                    yield self._doubling, self._adds(flying, flying, way.doubled), way.doubled
            if faults.losses and not faults.spared(self.network.messages[message]):
                yield self._losing, left - flying, self._loss(message)

    def _by_crashes(self, core: int) -> Iterator[tuple[int, int | None, Way]]:
        for seat, unit in self._crashing:
            for way in seat.crashes(core >> seat.shift & FIELD):
                yield unit, way.adds, way

    def _adds(self, before: int, flying: int, way: Way) -> int | None:
        after = flying if way.sent == EMPTY else self.network.plus(flying, way.sent)
        return None if after == FULL else way.adds + after - before

    def _tidy(self, core: int) -> int:
        """Forget the messages in flight that are moot."""
        flying = left = core & FIELD
        for seat in self._choosy:
            left = seat.heeds(core >> seat.shift & FIELD, left)
        return core - flying + left

    def _receiver(self, message: int) -> Seat:
        found = self._receivers.get(message)
        if found is None:
            found = self._receivers[message] = self.seat(self.network.messages[message].to)
        return found

    def _loss(self, message: int) -> Way:
        if message not in self._lost:
            what = self.network.messages[message]
            self._lost[message] = Way(f"{NETWORK} loses {what} to {what.to}", 0, onward=False)
        return self._lost[message]

    def shifts(self, claim: Claim) -> tuple[int, ...]:
        """Return where in the number the claim's subjects stand."""
        return tuple(0 if name == NETWORK else self.seat(name).shift for name in claim.of)

    def holds(self, claim: Claim, numbers: tuple[int, ...]) -> bool:
        """Ask a claim about the subjects with these numbers."""
        return claim.holds(*(self._subject(name, number) for name, number in zip(claim.of, numbers, strict=True)))

    def _subject(self, name: str, number: int) -> object:
        return self.network.held(number) if name == NETWORK else self.seat(name).seen(number)

    def anybody_down(self, state: int) -> bool:
        """Tell whether a party has crashed and not yet started again."""
        return any(isinstance(self._stands(seat, state), Down) for seat, _ in self._crashing)

    def describe(self, state: int) -> tuple[str, ...]:
        """Return one line per party, and one for what is in flight."""
        lines = [f"{seat.party.name}: {self._stands(seat, state)}" for seat in self.seats]
        flying = ", ".join(f"{one} to {one.to}" for one in self.network.held(state & FIELD))
        return (*lines, f"{NETWORK}: {flying or 'nothing in flight'}")

    def _stands(self, seat: Seat, state: int) -> object:
        return seat.states[state >> seat.shift & FIELD]


def _small(field: str, budget: int) -> int:
    if not 0 <= budget <= BUDGET:
        raise BadInput(field, budget, f"a number from 0 to {BUDGET}")
    return budget
