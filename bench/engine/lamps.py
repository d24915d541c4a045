"""The objects that the engine is measured with: lamps that can be flashed, which takes no work at all."""

from time import time

from stateward.engine import Handler, Kind
from stateward.engine.job import Run
from stateward.lifecycle import MINUTE, NEW, STABLE, TRANSITIONAL, USER, State, action, declare, step
from stateward.store.records import Object

NS = "bench"


class Lamp(State):
    """The states of a lamp."""

    OFF = "off", STABLE
    FLASHING = "flashing", TRANSITIONAL
    BROKEN = "broken", STABLE


ROWS = (
    step(NEW, "make", USER, Lamp.OFF),
    action(Lamp.OFF, "flash", USER, Lamp.FLASHING, Lamp.OFF, Lamp.BROKEN, 10 * MINUTE),
)

LAMP = declare("bench.lamp", Lamp, ROWS, USER)


async def nothing(_: object) -> None:
    """Do no work."""


async def tell_the_time(_: object) -> float:
    """Do no work, and tell when that was."""
    return time()


def lamps(flash: Run = nothing) -> Kind:
    """Return the kind, with what flashing does."""
    return Kind(LAMP, {"flash": Handler(flash)})


def name_of(number: int) -> str:
    """Return the name of a lamp."""
    return f"lamp-{number}"


def lamp(number: int) -> Object:
    """Return a lamp as it is stored: switched off."""
    name = name_of(number)
    return Object(
        ns=NS,
        id=name,
        kind=LAMP.kind,
        state=Lamp.OFF.word,
        since=0.0,
        version=1,
        generation=0,
        op=None,
        queue=name,
        parent=None,
        spec="{}",
        labels="{}",
        error=None,
        created=0.0,
    )
