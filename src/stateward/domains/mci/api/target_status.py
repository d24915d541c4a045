"""Target status of MCIs and VMs from their operations, and the problems that keep an MCI waiting.

An object without an operation has no target. The engine stores the last problem of an operation with its object. An MCI
waits for its VMs, and before them for networks, security groups and keys. A problem is shown once, with the number of
objects that wait for it.
"""

from collections.abc import Sequence

from msgspec import Struct

from stateward.domains.mci.api.schemas import NONE
from stateward.domains.mci.lifecycle import VM
from stateward.lifecycle import GONE, TRANSITIONAL
from stateward.store.port import Reader
from stateward.store.records import Key, Object, Operation, Status

WORDS = {"scale out": "ScaleOut", "scale in": "ScaleIn"}
UNDER_WAY = (Status.WAITING, Status.RUNNING)


class TargetStatus(Struct, frozen=True):
    """An action, and the status that it leads to."""

    action: str = NONE
    status: str = NONE


NO_TARGET = TargetStatus()


def target_of(operation: Operation | None) -> TargetStatus:
    """Return the target of an operation."""
    if operation is None:
        return NO_TARGET
    action = WORDS.get(operation.action, operation.action.capitalize())
    if operation.hidden:  # a hidden operation does not change the status
        return TargetStatus(action)
    return TargetStatus(action, "Terminated" if operation.desired == GONE else operation.desired)


class TargetFinder:
    """Finds the targets of an MCI and its VMs."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def of_mci(self, mci: Object) -> TargetStatus:
        """Return the target of an MCI; hidden operations count too, because they block others."""
        if mci.op is not None:
            return target_of(await self._reader.operation(Key(mci.ns, mci.op)))
        for work in await self._reader.queue_of(mci.key):
            operation = None if work.fenced else await self._reader.operation(work.key)
            if operation is not None and operation.status in UNDER_WAY:
                return target_of(operation)
        return NO_TARGET

    async def of_vms(self, whole: str | None, vms: Sequence[Object]) -> dict[str, TargetStatus]:
        """Return the targets of VMs by id; `whole` is the operation of their MCI, usually the parent."""
        busy = {vm.op: vm for vm in vms if vm.op is not None}
        if not busy:
            return {}
        ns = vms[0].ns
        children = (
            {} if whole is None else {child.id: child for child in await self._reader.children_of(Key(ns, whole))}
        )
        targets: dict[str, TargetStatus] = {}
        for op, vm in busy.items():
            operation = children.get(op) or await self._reader.operation(Key(ns, op))
            targets[vm.id] = target_of(operation)
        return targets


MAX_PROBLEMS = 10
"""Maximal number of problems shown."""

MAX_CHILDREN = 50
"""Maximal number of child operations read for an MCI without VMs."""


async def waiting_problems(reader: Reader, mci: Object, vms: Sequence[Object]) -> list[str]:
    """Return the problems that keep an MCI waiting, in the providers' words."""
    waiting = [vm for vm in vms if VM.state(vm.state).state_class is TRANSITIONAL]
    if mci.op is not None and not waiting:
        op = Key(mci.ns, mci.op)
        under_way = [
            child for child in await reader.children_of(op) if child.status in (Status.WAITING, Status.RUNNING)
        ]
        keys = [Key(op.ns, child.object) for child in under_way[:MAX_CHILDREN]]
        objects = await reader.objects(keys)
        waiting = [objects[key] for key in keys if key in objects]
    names: dict[str, list[str]] = {}
    for record in waiting:
        if record.error:
            names.setdefault(record.error, []).append(record.id.partition(".")[2] or record.id)
    problems = [
        f"{first}{f' and {len(others)} more' if others else ''}: {error}" for error, (first, *others) in names.items()
    ]
    return problems[:MAX_PROBLEMS]
