"""Connections of agents: welcomed with a notify id that only grows, and missed when they are gone."""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.edge.around import holder_of
from stateward.domains.edge.desks import closed, opened
from stateward.domains.edge.lifecycle import CLOUDLET, CloudletState
from stateward.domains.edge.model import cloudlet_marks, seat_of, text_of, with_seat
from stateward.domains.edge.succession import Event, Role, Seat, Seated, Unwanted, departed, greeted
from stateward.domains.edge.writing import reject, write_seated
from stateward.engine import Accepted, Request
from stateward.engine.accept import admit_all
from stateward.engine.desk import Desk
from stateward.engine.kinds import Kinds
from stateward.lifecycle import AGENT, CONTROLLER
from stateward.store.changes import Ended
from stateward.store.port import Tx
from stateward.store.records import Key, Object, Operation

NO_CLOUDLET = "there is no such cloudlet"


class Greeting(Struct, frozen=True):
    """An agent that has dialled: for which cloudlet, of which version, as whose heir, and at which controller."""

    ns: str
    cloudlet: str
    version: str
    heir: int
    controller: str


class Greeted(Struct, frozen=True):
    """How an agent is welcome; `unwanted` says why it is not."""

    notify: int = 0
    role: Role = "serving"
    unwanted: str = ""


class Parting(Struct, frozen=True):
    """A connection that is gone."""

    ns: str
    cloudlet: str
    notify: int


async def greet(tx: Tx, kinds: Kinds, new_id: Callable[[], str], greetings: Sequence[Greeting]) -> list[Greeted]:
    """Welcome agents; the start and its acknowledgement are one write."""
    desk = await opened(tx, {Key(one.ns, one.cloudlet) for one in greetings})
    answers = [await _greet(desk, kinds, new_id, one) for one in greetings]
    await closed(desk)
    return answers


async def _greet(desk: Desk, kinds: Kinds, new_id: Callable[[], str], greeting: Greeting) -> Greeted:
    found = desk.objects.get(Key(greeting.ns, greeting.cloudlet))
    if found is None or found.removed or found.kind != CLOUDLET.kind:
        return Greeted(unwanted=NO_CLOUDLET)
    operation = await holder_of(desk, found)
    seated = greeted(seat_of(found, operation), greeting.version, greeting.heir)
    if isinstance(seated, Unwanted):
        reject(desk, found, AGENT, greeting.version, "start", seated)
        return Greeted(unwanted=seated)
    here = {"controller" if seated.role == "serving" else "heir_controller": greeting.controller}
    marks = replace(cloudlet_marks(found), **here)
    if seated.event is not None and seated.event.name == "start":
        seen = text_of(with_seat(marks, seated.seat))
        await _start(desk, kinds, found, Request(found.ns, found.id, "start", new_id(), AGENT, greeting.version), seen)
    else:
        write_seated(desk, CLOUDLET, found, operation, seated, greeting.version, marks=marks)
    return Greeted(seated.seat.issued, seated.role)


async def _start(desk: Desk, kinds: Kinds, found: Object, request: Request, seen: str) -> None:
    (verdict,) = await admit_all(desk, kinds, [replace(request, seen=seen)])
    if not isinstance(verdict, Accepted):
        raise verdict
    started = desk.objects[found.key]
    operation = await holder_of(desk, started)
    acknowledged = Seated(_seat(started), Event("acknowledge", CONTROLLER))
    if started.state == CloudletState.INIT:
        write_seated(desk, CLOUDLET, started, operation, acknowledged, request.who)


def _seat(found: Object) -> Seat:
    return seat_of(found, None)


async def part(tx: Tx, partings: Sequence[Parting]) -> list[bool]:
    """Take note of connections that are gone; tells for each whether the cloudlet went offline by it."""
    desk = await opened(tx, {Key(one.ns, one.cloudlet) for one in partings})
    answers = [await _part(desk, one) for one in partings]
    await closed(desk)
    return answers


async def _part(desk: Desk, parting: Parting) -> bool:
    found = desk.objects.get(Key(parting.ns, parting.cloudlet))
    if found is None or found.removed or found.kind != CLOUDLET.kind:
        return False
    operation = await holder_of(desk, found)
    seated = departed(seat_of(found, operation), parting.notify)
    changed = write_seated(desk, CLOUDLET, found, operation, seated, "", "the agent's connection is gone")
    return changed.state != found.state


async def after_cloudlet(desk: Desk, operation: Operation, ended: Ended) -> None:  # noqa: ARG001 - as all of them
    """See that a cloudlet that was not deleted after all is offline, if its agent has left meanwhile."""
    found = desk.objects[Key(operation.ns, operation.object)]
    seat = seat_of(found, None)
    if operation.action == "delete" and found.state == CloudletState.READY and not seat.serving:
        write_seated(desk, CLOUDLET, found, None, Seated(seat, Event("disconnected", CONTROLLER)), "")
