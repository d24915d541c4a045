"""What is true of every change of a host: nothing that was promised is forgotten, and whoever is concerned is told."""

import msgspec
from msgspec.structs import replace

from stateward.domains.leases.booking import fits
from stateward.domains.leases.clock import heal_all
from stateward.domains.leases.model import Booking, Host, HostSpec, host_of, written
from stateward.engine import Denied, Request
from stateward.engine.desk import Desk
from stateward.store.records import Object


class StillBooked(Denied):
    """A host cannot go, or shrink, while it is promised to leases."""

    code = "still_booked"

    def __init__(self, host: str, leases: tuple[str, ...]) -> None:
        super().__init__(host, leases)
        self.host, self.leases = host, leases

    def __str__(self) -> str:
        more = f" and {len(self.leases) - 3} more" if len(self.leases) > 3 else ""
        return f"host {self.host} is promised to {', '.join(self.leases[:3])}{more}"


async def host_guard(desk: Desk, request: Request, found: Object) -> Request | None:
    """Check a request about a host, and complete it."""
    if request.birth is not None:
        return None
    host = host_of(found)
    match request.action:
        case "update":
            _refuse_to_shrink(host, request)
        case "remove":
            _refuse_to_go(host, desk.now)
        case "fail":
            concerned = [one.lease for one in host.seen.bookings if one.until > desk.now]
            held = [one.lease for one in host.seen.held]
            desk.changes.timers += heal_all(request.ns, [*concerned, *held], host.spec.name, desk.now)
        case "recover":
            desk.changes.timers += heal_all(request.ns, host.seen.missed, host.spec.name, desk.now)
            return replace(request, seen=written(replace(host.seen, missed=())))
    return None


def _refuse_to_shrink(host: Host, request: Request) -> None:
    spec = host.spec if request.spec is None else msgspec.json.decode(request.spec, type=HostSpec)
    broken = [one for one in host.seen.bookings if not fits(spec, host.seen.bookings, one)]
    if broken and broken != [one for one in host.seen.bookings if not fits(host.spec, host.seen.bookings, one)]:
        raise StillBooked(host.spec.name, _leases(broken))


def _refuse_to_go(host: Host, now: float) -> None:
    ahead = [one for one in host.seen.bookings if one.until > now]
    if ahead or host.seen.held:
        raise StillBooked(host.spec.name, _leases(ahead) or tuple(one.lease for one in host.seen.held))


def _leases(bookings: list[Booking]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.lease for one in bookings))
