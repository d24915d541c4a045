"""Orphans: what exists at a cloudlet and nobody asked for. Reported, and removed only where policy says so."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from stateward.agents.messages import Item, Order, Work
from stateward.domains.edge.desks import closed, opened
from stateward.domains.edge.model import CloudletSpec, cloudlet_marks, marks_of, spec_of, text_of
from stateward.domains.edge.writing import put_seen
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import AGENT, CONTROLLER
from stateward.store.port import Tx
from stateward.store.records import Key, Object


def report_orphans(
    uow: UnitOfWork, cloudlet: Object, things: dict[str, Object], items: Sequence[Item], notify: int
) -> Iterator[Order]:
    """Report what nobody knows of, and yield how to remove it if that is wanted."""
    known = cloudlet_marks(cloudlet).orphans
    for item in items:
        if item.name not in known:
            why = f"{item.name} exists at the cloudlet, and nobody asked for it"
            journal(uow, cloudlet, None, CONTROLLER, "", "orphan", reason=why)
    _note(uow, cloudlet, [one.name for one in items])
    if spec_of(cloudlet, CloudletSpec).orphans == "remove":
        for item in items:
            yield _removal(uow, things.get(item.name), item, notify)


def _removal(uow: UnitOfWork, former: Object | None, item: Item, notify: int) -> Order:
    """Return the order to remove an orphan, under a number that beats all that the agent has seen of the name."""
    number = max(item.latest + 1, int(uow.now * 1000))
    if former is not None:
        number = max(number, marks_of(former).issued + 1)
        put_seen(uow, former, text_of(replace(marks_of(former), issued=number)))
    return Order(Work.DELETE, number, item.generation, notify, item.name, id="orphan")


async def remove_orphan(tx: Tx, ns: str, cloudlet: str, name: str) -> None:
    """Take note that an orphan was removed."""
    uow = await opened(tx, [Key(ns, cloudlet)])
    found = uow.objects.get(Key(ns, cloudlet))
    if found is not None and not found.removed:
        journal(uow, found, None, AGENT, "", "orphan removed", reason=name)
        _note(uow, found, [one for one in cloudlet_marks(found).orphans if one != name])
    await closed(uow)


def _note(uow: UnitOfWork, cloudlet: Object, names: Sequence[str]) -> None:
    put_seen(uow, cloudlet, text_of(replace(cloudlet_marks(cloudlet), orphans=tuple(sorted(names)))))
