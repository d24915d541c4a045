"""What is true of every change of a host: nothing that was promised is forgotten, and whoever is concerned is told."""

import msgspec
from msgspec.structs import replace

from stateward.domains.leases.bookings import fits
from stateward.domains.leases.model import Booking, Host, HostSpec, Share, host_key, host_of, written
from stateward.domains.leases.timers import heal_all
from stateward.domains.leases.wire_values import MOST_MINUTES, MOST_SIZE, read_whole_number
from stateward.engine import Denied, Request
from stateward.engine.requests import EMPTY
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
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


async def host_guard(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    """Check a request about a host, and complete it."""
    if request.creates is not None or request.spec is not None:
        _check_spec(request.spec or EMPTY, found)
    if request.creates is not None:
        return None
    host = host_of(found)
    match request.action:
        case "update":
            _refuse_to_shrink(host, request)
        case "remove":
            _refuse_to_go(host, uow.now)
        case "fail":
            concerned = [one.lease for one in host.seen.bookings if one.until > uow.now]
            held = [one.lease for one in host.seen.held]
            uow.changes.timers += heal_all(request.ns, [*concerned, *held], host.spec.name, uow.now)
        case "recover":
            uow.changes.timers += heal_all(request.ns, host.seen.missed, host.spec.name, uow.now)
            return replace(request, seen=written(replace(host.seen, missed=())))
    return None


def _check_spec(text: str, found: Object) -> None:
    """Refuse a spec with which a host could not keep what it promises, whichever way it came."""
    try:
        spec = msgspec.json.decode(text, type=HostSpec)
    except msgspec.ValidationError as error:
        raise BadInput("spec", text, f"what a host is: {error}") from error
    if host_key(found.ns, spec.name) != found.key:
        raise BadInput("spec.name", spec.name, f"the name by which the host goes: its id is {found.id!r}")
    if not 0 <= spec.cleaning <= MOST_MINUTES * 60.0:
        raise BadInput("spec.cleaning", spec.cleaning, f"a number from 0 to {MOST_MINUTES * 60}")
    for field in Share.__struct_fields__:
        read_whole_number(f"spec.size.{field}", getattr(spec.size, field), 0, MOST_SIZE)


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
