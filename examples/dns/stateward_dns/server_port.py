"""The port to a DNS server: everything that the domain asks of one, and who implements it.

A method raises the engine's errors, which are policies: `Temporary` (certainly no effect), `Unknown` (perhaps an
effect: observe first) and `Permanent`.
"""

from collections.abc import Mapping
from typing import Protocol

from stateward_dns.model import RRset, RRsetKey


class DnsServer(Protocol):
    """A DNS server that adds zones and records when asked to."""

    @property
    def address(self) -> str:
        """Its address: the lane of its operations."""

    async def read_owner(self, zone: str) -> str | None:
        """Return for whom a zone was added; None if it was not added by us."""

    async def serves(self, zone: str) -> bool:
        """Return whether the server answers for a zone with authority."""

    async def add_zone(self, zone: str, owner: str) -> None:
        """Add a zone, unless it was added for this owner before."""

    async def remove_zone(self, zone: str, owner: str) -> None:
        """Remove a zone, if it was added for this owner."""

    async def read_rrset(self, zone: str, key: RRsetKey) -> RRset | None:
        """Return the values of a name and type; None: the server says that there are none."""

    async def write_rrset(self, zone: str, key: RRsetKey, wanted: RRset | None, *, is_new: bool = False) -> None:
        """Replace the values of a name and type at once, or remove them; with `is_new`, only if there are none."""

    async def read_zone(self, zone: str) -> Mapping[RRsetKey, RRset] | None:
        """Return all that is served in a zone; None: the server says that it does not serve the zone."""
