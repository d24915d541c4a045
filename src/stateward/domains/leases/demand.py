"""What a reservation asks of the hosts, whatever its type: whole ones or shares of them, how many and which."""

from msgspec import Struct

from stateward.domains.leases.model import Booking, Share, Window


class Demand(Struct, frozen=True):
    """So many hosts, or so many shares on hosts, from `least` to `most`.

    `apart` says that no two shares may be on one host, `together` that all must be.
    """

    least: int
    most: int
    share: Share | None = None
    properties: tuple[str, ...] = ()
    apart: bool = False
    together: bool = False

    def booking(self, lease: str, reservation: str, window: Window, count: int) -> Booking:
        """Return what a host is asked to promise."""
        share = None if self.share is None else self.share.times(count)
        return Booking(lease, reservation, window.start, window.end, share)
