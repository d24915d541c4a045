"""What a million objects weigh when a state is a shared word, against a machine per object.

Ours is a list of small records, counted whole: the list, the records and their ids. The peers' machines are counted for
a thousand and taken times a thousand; each has two states, two guarded moves and no id. What they share (a class, a
definition) is made before the count begins.
"""

import gc
import tracemalloc
from collections.abc import Callable

from msgspec import Struct

from bench.decide import PeerLamp, lamp_of_automaton, lamp_of_transitions
from bench.figures import Line, ratio
from stateward.domains.mci.lifecycle import VmState

OBJECTS = 1_000_000
MACHINES = 1_000
WHAT = "an object with its state, in memory"
PEERS: dict[str, Callable[[int], object]] = {
    "automaton": lambda _: lamp_of_automaton(),
    "transitions": lambda _: lamp_of_transitions(),
    "python-statemachine": lambda _: PeerLamp(),
}


class Record(Struct, gc=False):
    """An object as a store would hold it in memory."""

    id: str
    state: VmState


def report() -> list[Line]:
    """Measure and return lines to print."""
    bare = bytes_each(lambda _: Record("", VmState.RUNNING), OBJECTS)
    ours = bytes_each(lambda number: Record(f"vm-{number}", VmState.RUNNING), OBJECTS)
    peers = {name: bytes_each(make, MACHINES) for name, make in PEERS.items()}
    return [
        f"memory: {OBJECTS:,} objects, each with its state",
        *(ratio(WHAT, ours / each, f"the memory of one of {name}") for name, each in peers.items()),
        f"  {in_all(ours)}  ours ({bare:.0f} bytes without the id)",
        *(f"  {in_all(each)}  {name}" for name, each in peers.items()),
    ]


def bytes_each(make: Callable[[int], object], count: int) -> float:
    """Return what each of `count` things in a list takes, the list included."""
    make(0)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = [make(number) for number in range(count)]
        after, _ = tracemalloc.get_traced_memory()
        return (after - before) / len(kept)
    finally:
        tracemalloc.stop()


def in_all(each: float) -> str:
    return f"{each:7,.0f} bytes each, {each * OBJECTS / 2**20:7,.0f} MiB in all"
