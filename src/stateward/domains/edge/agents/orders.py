"""Orders due to agents, with the name, host and spec of the instance."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from stateward.agents.messages import AgentOrder
from stateward.domains.edge.agents.record_writer import write_step
from stateward.domains.edge.lookups import NOT_PRESENT, unit_of_work
from stateward.domains.edge.model import (
    INSTANCE_LIFECYCLES,
    cloudlet_of,
    cloudlet_status,
    instance_record,
    instance_status,
    local_name,
)
from stateward.domains.edge.records.instance_record import (
    DecisionRules,
    InstanceRecord,
    begin_undo,
    due_order,
    needs_undo,
)
from stateward.domains.edge.records.reconcile import ReconcileStep
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.port import Tx
from stateward.store.records import Key, Object, to_json

RULES = {kind: DecisionRules(lifecycle=lifecycle) for kind, lifecycle in INSTANCE_LIFECYCLES.items()}


async def due_orders(tx: Tx, keys: Sequence[Key]) -> list[AgentOrder | None]:
    """Return the order due for each instance, if any; starts the undos that have yet to start."""
    async with unit_of_work(tx, {*keys, *(Key(key.ns, cloudlet_of(key.id)) for key in keys)}) as uow:
        return [_due_order(uow, key) for key in keys]


def _due_order(uow: UnitOfWork, key: Key) -> AgentOrder | None:
    instance, cloudlet = uow.objects.get(key), uow.objects.get(Key(key.ns, cloudlet_of(key.id)))
    if (
        instance is None
        or instance.kind not in INSTANCE_LIFECYCLES
        or cloudlet is None
        or instance.state == NOT_PRESENT
    ):
        return None
    operation = uow.operations.get(Key(instance.ns, instance.op)) if instance.op is not None else None
    notify = cloudlet_status(cloudlet).serving
    record = instance_record(instance, operation, notify)
    if needs_undo(record):
        record = begin_undo(RULES[instance.kind], record)
        instance = write_step(uow, instance, operation, ReconcileStep(record, "begins the undo"), "")
    return complete_order(instance, record, notify)


def complete_order(instance: Object, record: InstanceRecord, notify: int) -> AgentOrder | None:
    """Return the complete order due for an instance over a connection, if any."""
    order = due_order(record, notify)
    if order is None:
        return None
    status = instance_status(instance)
    spec = status.spec if record.state in ("UpdateError", "DeleteError") else instance.spec
    name = instance.op or f"undo of {status.undo_of}"
    return replace(
        order, name=local_name(instance.id), host=status.cluster, id=name, spec=_with_kind(instance, spec or "{}")
    )


def _with_kind(instance: Object, spec: str) -> str:
    """Return the spec with its kind, which the agent's site needs."""
    kind = instance.kind.partition(".")[2]
    return to_json({**msgspec.json.decode(spec), "kind": kind})
