"""The messages in flight: multisets, each with a small number, so that the search compares numbers only."""

# bounded by: one exploration
from collections.abc import Callable

from stateward.testing.protocols.protocol_model import Bounds, ModelMessage

FULL = -1
"""Returned in place of a multiset that would be larger than allowed."""

EMPTY = 0


class MessageSets:
    """All multisets of messages seen so far, with cached results of adding and taking messages."""

    __slots__ = ("_bounds", "_multisets", "_numbers", "_sums", "_takes", "messages", "multisets")

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.messages: list[ModelMessage] = []
        self._numbers: dict[ModelMessage, int] = {}
        self.multisets: list[tuple[int, ...]] = [()]
        self._multisets: dict[tuple[int, ...], int] = {(): EMPTY}
        self._sums: dict[tuple[int, int], int] = {}
        self._takes: dict[int, tuple[tuple[int, int], ...]] = {}

    def of(self, messages: tuple[ModelMessage, ...]) -> int:
        """Return the number of the multiset of these messages."""
        return self._multiset(tuple(sorted(map(self._number, messages))))

    def held(self, multiset: int) -> tuple[ModelMessage, ...]:
        """Return the messages of a multiset."""
        return tuple(self.messages[number] for number in self.multisets[multiset])

    def plus(self, multiset: int, sent: int) -> int:
        """Return the multiset with further messages added, or FULL."""
        key = multiset, sent
        total = self._sums.get(key)
        if total is None:
            total = self._sums[key] = self._sum(multiset, sent)
        return total

    def takes(self, multiset: int) -> tuple[tuple[int, int], ...]:
        """Return each different message of a multiset, with the multiset that remains without one of it."""
        taken = self._takes.get(multiset)
        if taken is None:
            taken = self._takes[multiset] = tuple(
                (number, self._without(multiset, number)) for number in dict.fromkeys(self.multisets[multiset])
            )
        return taken

    def only(self, multiset: int, wanted: Callable[[ModelMessage], bool]) -> int:
        """Return the multiset of the messages that match."""
        return self._multiset(tuple(number for number in self.multisets[multiset] if wanted(self.messages[number])))

    def _sum(self, multiset: int, sent: int) -> int:
        together = list(self.multisets[multiset])
        for number in self.multisets[sent]:
            if together.count(number) < self._bounds.copies:
                together.append(number)
        return FULL if len(together) > self._bounds.in_flight else self._multiset(tuple(sorted(together)))

    def _without(self, multiset: int, number: int) -> int:
        left = list(self.multisets[multiset])
        left.remove(number)
        return self._multiset(tuple(left))

    def _number(self, message: ModelMessage) -> int:
        number = self._numbers.setdefault(message, len(self.messages))
        if number == len(self.messages):
            self.messages.append(message)
        return number

    def _multiset(self, numbers: tuple[int, ...]) -> int:
        number = self._multisets.setdefault(numbers, len(self.multisets))
        if number == len(self.multisets):
            self.multisets.append(numbers)
        return number
