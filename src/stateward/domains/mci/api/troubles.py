"""Troubles that keep an MCI waiting, for its system messages: what its providers said last.

The engine keeps the last trouble of an operation with its object. An MCI waits for its VMs. Before there are any, it
waits for networks, security groups and keys. A provider's trouble is told once, however many wait for it.
"""

from collections.abc import Iterable, Sequence

from stateward.domains.mci.lifecycle import VM
from stateward.lifecycle import TRANSITIONAL
from stateward.store.port import Reader
from stateward.store.records import Key, Object, Status

MOST = 10
"""How many troubles are told at most."""

MOST_CHILDREN = 50
"""How many operations are looked at, at most, that an MCI without VMs waits for."""


async def troubles_of(reader: Reader, mci: Object, vms: Sequence[Object]) -> list[str]:
    """Return what keeps an MCI waiting, in the words of its providers."""
    waiting = [one for one in vms if VM.state(one.state).state_class is TRANSITIONAL]
    if mci.op is not None and not waiting:
        waiting = await _parts(reader, Key(mci.ns, mci.op))
    return _told(waiting)


async def _parts(reader: Reader, op: Key) -> list[Object]:
    """Return the objects of operations that an MCI's operation waits for."""
    under_way = [one for one in await reader.children_of(op) if one.status in (Status.WAITING, Status.RUNNING)]
    keys = [Key(op.ns, one.object) for one in under_way[:MOST_CHILDREN]]
    found = await reader.objects(keys)
    return [found[key] for key in keys if key in found]


def _told(waiting: Iterable[Object]) -> list[str]:
    """Return each trouble once, with the first that has it and how many others do."""
    names: dict[str, list[str]] = {}
    for one in waiting:
        if one.error:
            names.setdefault(one.error, []).append(one.id.partition(".")[2] or one.id)
    told = [
        (f"{first}{f' and {len(others)} more' if others else ''}", error) for error, (first, *others) in names.items()
    ]
    return [f"{who}: {error}" for who, error in told[:MOST]]
