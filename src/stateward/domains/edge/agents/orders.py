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
    found, cloudlet = uow.objects.get(key), uow.objects.get(Key(key.ns, cloudlet_of(key.id)))
    if found is None or found.kind not in INSTANCE_LIFECYCLES or cloudlet is None or found.state == NOT_PRESENT:
        return None
    operation = uow.operations.get(Key(found.ns, found.op)) if found.op is not None else None
    notify = cloudlet_status(cloudlet).serving
    record = instance_record(found, operation, notify)
    if needs_undo(record):
        record = begin_undo(RULES[found.kind], record)
        found = write_step(uow, found, operation, ReconcileStep(record, "begins the undo"), "")
    return complete_order(found, record, notify)


def complete_order(found: Object, record: InstanceRecord, notify: int) -> AgentOrder | None:
    """Return the complete order due for an instance over a connection, if any."""
    order = due_order(record, notify)
    if order is None:
        return None
    status = instance_status(found)
    spec = status.spec if record.state in ("UpdateError", "DeleteError") else found.spec
    name = found.op or f"undo of {status.undo_of}"
    return replace(order, name=local_name(found.id), host=status.cluster, id=name, spec=_with_kind(found, spec or "{}"))


def _with_kind(found: Object, spec: str) -> str:
    """Return the spec with its kind, which the agent's site needs."""
    kind = found.kind.partition(".")[2]
    return to_json({**msgspec.json.decode(spec), "kind": kind})
