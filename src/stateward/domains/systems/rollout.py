"""The next step of a rolling update: which instances to start and to stop, given those that exist (pure).

The step is computed again after every change, so a crash of an instance or of the worker needs no special case. There
are never more than `wanted + max_surge` instances, and at least `wanted - max_unavailable` of those that were ready
stay ready. An instance that must move to another node counts as one of an old revision.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.systems.backends.port import InstancePhase, ServiceInstance
from stateward.domains.systems.definition import Rollout


class RolloutStep(Struct, frozen=True):
    """The instances to start, by their new names, and the instances to stop."""

    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


def next_step(wanted: int, revision: str, rollout: Rollout, seen: Sequence[ServiceInstance]) -> RolloutStep:
    """Return the next step towards the wanted number of instances of one revision."""
    present = [instance for instance in seen if instance.is_wanted]
    new = [instance for instance in present if instance.is_current(revision)]
    room = wanted + rollout.max_surge - len(present)
    starts = max(0, min(wanted - len(new), room))
    taken = {instance.name for instance in seen}
    free = (name for number in range(len(taken) + starts + 1) if (name := f"{revision}-{number}") not in taken)
    names = tuple(name for name, _ in zip(free, range(starts), strict=False))
    return RolloutStep(names, tuple(_stops(wanted, revision, rollout, present)))


def _stops(wanted: int, revision: str, rollout: Rollout, present: Sequence[ServiceInstance]) -> list[str]:
    old = [instance for instance in present if not instance.is_current(revision)]
    new = sorted(
        (instance for instance in present if instance.is_current(revision)),
        key=lambda instance: (not instance.ready, instance.name),
    )
    # they serve no requests, so stopping them costs nothing
    ailing = [instance.name for instance in old if not instance.ready]
    surplus = new[wanted:]
    spare = sum(instance.ready for instance in present) - max(0, wanted - rollout.max_unavailable)
    serving = [instance.name for instance in old if instance.ready][
        : max(0, spare - sum(instance.ready for instance in surplus))
    ]
    return [*ailing, *serving, *(instance.name for instance in surplus)]


def keep_unmovable(wanted: int, seen: Sequence[ServiceInstance]) -> list[ServiceInstance]:
    """Return the instances as they count: on a node that is drained, those stay for which no other node has room.

    While there are more instances than wanted, a move is under way: the new one may have taken the last room.
    """
    if sum(instance.is_wanted for instance in seen) > wanted:
        return list(seen)
    return [replace(instance, must_move=False) if instance.no_room else instance for instance in seen]


def is_done(wanted: int, revision: str, seen: Sequence[ServiceInstance]) -> bool:
    """Tell whether exactly the wanted instances exist, and all are ready."""
    return len(seen) == wanted and all(
        instance.ready and instance.is_wanted and instance.is_current(revision) for instance in seen
    )


def is_queued(seen: Sequence[ServiceInstance]) -> bool:
    """Tell whether an instance waits for the starts of others, which says nothing about its service."""
    return any(instance.phase is InstancePhase.WAITING for instance in seen)


def progress_score(revision: str, seen: Sequence[ServiceInstance]) -> int:
    """Return a number that grows whenever there is progress."""
    ready = sum(instance.ready for instance in seen if instance.is_current(revision) and instance.is_wanted)
    return ready - sum(not instance.is_current(revision) or not instance.is_wanted for instance in seen)
