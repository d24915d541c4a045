"""Inventory sync: reconciles all instances of a cloudlet with its agent's inventory, in one transaction.

An orphan exists at the cloudlet but not in the records. Orphans are journaled, and removed only if the cloudlet's
policy says so.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from stateward.agents.agent_hub import SyncResult
from stateward.agents.messages import AgentOrder, InventoryItem, OrderAction
from stateward.domains.edge.agents.connections import NO_CLOUDLET
from stateward.domains.edge.agents.orders import RULES, complete_order
from stateward.domains.edge.agents.record_writer import (
    journal_rejection,
    tell_progress,
    write_slots,
    write_step,
)
from stateward.domains.edge.lifecycle import CLOUDLET
from stateward.domains.edge.lookups import current_operation, list_instances, loaded_object, save_status, unit_of_work
from stateward.domains.edge.model import (
    INSTANCE_LIFECYCLES,
    CloudletSpec,
    agent_slots,
    cloudlet_status,
    instance_record,
    instance_status,
    local_name,
    read_spec,
)
from stateward.domains.edge.policy.cluster_release import free_clusters_of_gone_apps
from stateward.domains.edge.records.agent_upgrade import AgentRejection, on_inventory
from stateward.domains.edge.records.instance_record import begin_undo, needs_undo
from stateward.domains.edge.records.reconcile import NOT_LISTED, ReconcileStep, on_inventory_item
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import count_text
from stateward.lifecycle import AGENT, CONTROLLER
from stateward.store.port import Tx
from stateward.store.records import Key, Object


class Inventory(Struct, frozen=True):
    """An agent's complete inventory."""

    ns: str
    cloudlet: str
    version: str
    notify: int
    items: tuple[InventoryItem, ...]
    installation: str = ""


class CloudletSync(SyncResult, frozen=True):
    """What the inventory of a cloudlet means: also the missing instances, and the orders due that remove orphans."""

    missing: tuple[str, ...] = ()
    orphan_removals: tuple[AgentOrder, ...] = ()


async def sync_inventories(tx: Tx, inventories: Sequence[Inventory], idle_s: float) -> list[CloudletSync]:
    """Reconcile complete inventories with the records; their agents are ready after it."""
    async with unit_of_work(tx, {Key(inventory.ns, inventory.cloudlet) for inventory in inventories}) as uow:
        results = [await _sync_inventory(uow, inventory) for inventory in inventories]
        await free_clusters_of_gone_apps(uow, list(uow.objects.values()), idle_s)
        return results


async def _sync_inventory(uow: UnitOfWork, inventory: Inventory) -> CloudletSync:
    cloudlet = loaded_object(uow, Key(inventory.ns, inventory.cloudlet), CLOUDLET.kind)
    if cloudlet is None:
        return CloudletSync(NO_CLOUDLET)
    operation = await current_operation(uow, cloudlet)
    update = on_inventory(agent_slots(cloudlet, operation), inventory.notify, inventory.version)
    if isinstance(update, AgentRejection):
        journal_rejection(uow, cloudlet, AGENT, inventory.version, "ready", update)
        return CloudletSync(update)
    status = cloudlet_status(cloudlet)
    if update.slots.serving != status.serving:  # the successor serves from now on
        owner = inventory.installation or None  # a successor without an identity drops the owner's
        status = replace(status, controller=status.heir_controller, heir_controller="", installation=owner)
    things = count_text(len(inventory.items), "thing")
    tell_progress(uow, cloudlet, operation, f"the inventory is complete: {things}", 3, 3)
    cloudlet = write_slots(uow, cloudlet, operation, update, inventory.version, status=status)
    return await _sync_instances(uow, cloudlet, inventory)


async def _sync_instances(uow: UnitOfWork, cloudlet: Object, inventory: Inventory) -> CloudletSync:
    items = {item.name: item for item in inventory.items}
    things = {local_name(instance.id): instance for instance in await list_instances(uow, cloudlet.ns, cloudlet.id)}
    things |= await _removed_instances(uow, cloudlet, items.keys() - things.keys())
    await uow.load_operations(
        {Key(instance.ns, instance.op) for instance in things.values() if instance.op is not None}
    )
    steps = {
        name: _sync_instance(uow, instance, items.get(name, NOT_LISTED), inventory) for name, instance in things.items()
    }
    unknown = [item for name, item in items.items() if name not in things and (item.generation or item.operation)]
    orphans = [*unknown, *(items[name] for name, (step, _) in steps.items() if step.is_orphan)]
    removals = tuple(report_orphans(uow, cloudlet, things, orphans, inventory.notify))
    due = (order for step, order in steps.values() if order is not None and not step.is_working)
    return CloudletSync(
        orders=(*removals, *due),
        working=tuple((name, items[name].operation) for name, (step, _) in steps.items() if step.is_working),
        missing=tuple(name for name, (step, _) in steps.items() if step.record.missing),
        orphan_removals=removals,
    )


async def _removed_instances(uow: UnitOfWork, cloudlet: Object, names: Iterable[str]) -> dict[str, Object]:
    """Return the removed instances of these names: their numbers fence orders that the agent may still have."""
    keys = {Key(cloudlet.ns, f"{cloudlet.id}:{name}"): name for name in names}
    await uow.load(keys)
    stored = {name: uow.objects.get(key) for key, name in keys.items()}
    return {
        name: instance
        for name, instance in stored.items()
        if instance is not None and instance.kind in INSTANCE_LIFECYCLES
    }


def _sync_instance(
    uow: UnitOfWork, instance: Object, item: InventoryItem, inventory: Inventory
) -> tuple[ReconcileStep, AgentOrder | None]:
    operation = uow.operations.get(Key(instance.ns, instance.op)) if instance.op is not None else None
    rules, record = RULES[instance.kind], instance_record(instance, operation, inventory.notify)
    step = on_inventory_item(rules, record, item)
    if needs_undo(step.record):
        step = ReconcileStep(begin_undo(rules, step.record), "begins the undo")
    changed = write_step(uow, instance, operation, step, inventory.cloudlet, "the agent lost the work")
    return step, complete_order(changed, step.record, inventory.notify)


def report_orphans(
    uow: UnitOfWork, cloudlet: Object, things: dict[str, Object], items: Sequence[InventoryItem], notify: int
) -> Iterator[AgentOrder]:
    """Journal new orphans, the first by name, and yield the orders to remove all if the policy says so."""
    before = cloudlet_status(cloudlet)
    after = before.with_orphans([item.name for item in items], len(items))
    new = [f"{name} exists" for name in after.orphans if name not in before.orphans]
    if after.orphan_count not in (len(after.orphans), before.orphan_count):
        new.append(f"{after.orphan_count} things exist")
    for what in new:
        journal(
            uow, cloudlet, None, CONTROLLER, "", "orphan", reason=f"{what} at the cloudlet, and nobody asked for it"
        )
    save_status(uow, cloudlet, after)
    if read_spec(cloudlet, CloudletSpec).orphans == "remove":
        for item in items:
            yield _removal_order(uow, things.get(item.name), item, notify)


def _removal_order(uow: UnitOfWork, former: Object | None, item: InventoryItem, notify: int) -> AgentOrder:
    """Return the order to remove an orphan, with a number above all that the agent has seen for the name."""
    number = max(item.latest + 1, int(uow.now * 1000))
    if former is not None:
        number = max(number, instance_status(former).issued + 1)
        save_status(uow, former, replace(instance_status(former), issued=number))
    return AgentOrder(OrderAction.DELETE, number, item.generation, notify, item.name, id="orphan")


async def journal_orphan_removed(tx: Tx, ns: str, cloudlet: str, name: str) -> None:
    """Journal that an orphan was removed, and drop it from the cloudlet's status."""
    async with unit_of_work(tx, [Key(ns, cloudlet)]) as uow:
        if (record := loaded_object(uow, Key(ns, cloudlet), CLOUDLET.kind)) is not None:
            journal(uow, record, None, AGENT, "", "orphan removed", reason=name)
            status = cloudlet_status(record)
            names = [orphan for orphan in status.orphans if orphan != name]
            save_status(uow, record, status.with_orphans(names, status.orphan_count - 1))
