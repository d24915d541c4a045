"""Replacing the instances of a service, a few at a time: what is to be done next, given what is there.

It is asked again after every change, so a crash in between, of an instance or of whoever does it, is just another
situation. While instances are replaced, there are never more than `wanted + max_surge` of them, and of those that were
ready at least `wanted - max_unavailable` stay so.
"""

from collections.abc import Sequence

from msgspec import Struct

from stateward.domains.systems.backends.port import ServiceInstance
from stateward.domains.systems.definition import Rollout


class RolloutStep(Struct, frozen=True):
    """What is to be done now: instances to start, by their new names, and instances to end."""

    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


def next_step(wanted: int, revision: str, rollout: Rollout, seen: Sequence[ServiceInstance]) -> RolloutStep:
    """Return what brings the instances nearer to being so many, of one revision."""
    present = [one for one in seen if one.is_wanted]
    new = [one for one in present if one.revision == revision]
    room = wanted + rollout.max_surge - len(present)
    starts = max(0, min(wanted - len(new), room))
    taken = {one.name for one in seen}
    free = (name for number in range(len(taken) + starts + 1) if (name := f"{revision}-{number}") not in taken)
    names = tuple(name for name, _ in zip(free, range(starts), strict=False))
    return RolloutStep(names, tuple(_stops(wanted, revision, rollout, present)))


def _stops(wanted: int, revision: str, rollout: Rollout, present: Sequence[ServiceInstance]) -> list[str]:
    old = [one for one in present if one.revision != revision]
    new = sorted((one for one in present if one.revision == revision), key=lambda one: (not one.ready, one.name))
    ailing = [one.name for one in old if not one.ready]  # they serve nobody: their going takes nothing away
    surplus = new[wanted:]
    spare = sum(one.ready for one in present) - max(0, wanted - rollout.max_unavailable)
    serving = [one.name for one in old if one.ready][: max(0, spare - sum(one.ready for one in surplus))]
    return [*ailing, *serving, *(one.name for one in surplus)]


def is_done(wanted: int, revision: str, seen: Sequence[ServiceInstance]) -> bool:
    """Tell whether there is what is wanted, and nothing else any more."""
    return len(seen) == wanted and all(one.ready and one.is_wanted and one.revision == revision for one in seen)


def progress_score(revision: str, seen: Sequence[ServiceInstance]) -> int:
    """Return a number that grows whenever there is progress."""
    ready = sum(one.ready for one in seen if one.revision == revision and one.is_wanted)
    return ready - sum(one.revision != revision or not one.is_wanted for one in seen)
