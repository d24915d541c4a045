"""The agent's list, as it arrives: what counts of it, and when it is complete. Only then is absence known."""

from collections.abc import Sized
from typing import Protocol

from stateward.agents.messages import End, Item


class Listing(Protocol):
    """What has arrived so far over a connection."""

    @property
    def connection(self) -> int:
        """The connection's notify id."""

    @property
    def items(self) -> Sized:
        """The lines so far."""

    @property
    def expected(self) -> int | None:
        """How many there are to be; None while the end has not come."""


def of_this_connection(listing: Listing, line: Item | End) -> bool:
    """Tell whether a line counts: a list is about the connection on which it was sent."""
    return line.notify == listing.connection


def all_listed(listing: Listing) -> bool:
    """Tell whether the agent's list is complete."""
    return len(listing.items) == listing.expected
