"""Orphans: what exists at a cloudlet and nobody asked for. Reported, and removed only where policy says so."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from stateward.agents.messages import Item, Order, Work
from stateward.domains.edge.desks import closed, opened
from stateward.domains.edge.model import CloudletSpec, cloudlet_marks, marks_of, spec_of, text_of
from stateward.domains.edge.writing import put_seen
from stateward.engine.change import journal
from stateward.engine.desk import Desk
from stateward.lifecycle import AGENT, CONTROLLER
from stateward.store.port import Tx
from stateward.store.records import Key, Object


def report_orphans(
    desk: Desk, cloudlet: Object, things: dict[str, Object], items: Sequence[Item], notify: int
) -> Iterator[Order]:
    """Report what nobody knows of, and yield how to remove it if that is wanted."""
    known = cloudlet_marks(cloudlet).orphans
    for item in items:
        if item.name not in known:
            why = f"{item.name} exists at the cloudlet, and nobody asked for it"
            journal(desk, cloudlet, None, CONTROLLER, "", "orphan", reason=why)
    _note(desk, cloudlet, [one.name for one in items])
    if spec_of(cloudlet, CloudletSpec).orphans == "remove":
        for item in items:
            yield _removal(desk, things.get(item.name), item, notify)


def _removal(desk: Desk, former: Object | None, item: Item, notify: int) -> Order:
    """Return the order to remove an orphan, under a number that beats all that the agent has seen of the name."""
    number = max(item.latest + 1, int(desk.now * 1000))
    if former is not None:
        number = max(number, marks_of(former).issued + 1)
        put_seen(desk, former, text_of(replace(marks_of(former), issued=number)))
    return Order(Work.DELETE, number, item.generation, notify, item.name, id="orphan")


async def remove_orphan(tx: Tx, ns: str, cloudlet: str, name: str) -> None:
    """Take note that an orphan was removed."""
    desk = await opened(tx, [Key(ns, cloudlet)])
    found = desk.objects.get(Key(ns, cloudlet))
    if found is not None and not found.removed:
        journal(desk, found, None, AGENT, "", "orphan removed", reason=name)
        _note(desk, found, [one for one in cloudlet_marks(found).orphans if one != name])
    await closed(desk)


def _note(desk: Desk, cloudlet: Object, names: Sequence[str]) -> None:
    put_seen(desk, cloudlet, text_of(replace(cloudlet_marks(cloudlet), orphans=tuple(sorted(names)))))
