"""Targets: what an object is on its way to, by the operation that works on it. At rest, there is none."""

from collections.abc import Sequence

from msgspec import Struct

from stateward.domains.mci.api.wire import NONE
from stateward.lifecycle import GONE
from stateward.store.port import Reader
from stateward.store.records import Key, Object, Operation, Status

WORDS = {"scale out": "ScaleOut", "scale in": "ScaleIn"}
UNDER_WAY = (Status.WAITING, Status.RUNNING)


class Target(Struct, frozen=True):
    """An action, and the status that it leads to."""

    action: str = NONE
    status: str = NONE


AT_REST = Target()


def target_of(operation: Operation | None) -> Target:
    """Return what an operation leads to."""
    if operation is None:
        return AT_REST
    action = WORDS.get(operation.action, operation.action.capitalize())
    if operation.hidden:  # it leaves the status as it is
        return Target(action)
    return Target(action, "Terminated" if operation.desired == GONE else operation.desired)


class Targets:
    """Finds the targets of an MCI and its VMs."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def of_mci(self, found: Object) -> Target:
        """Return the target of an MCI; hidden work on it counts as well, because it keeps other work away."""
        if found.op is not None:
            return target_of(await self._reader.operation(Key(found.ns, found.op)))
        for work in await self._reader.queue_of(found.key):
            operation = None if work.fenced else await self._reader.operation(work.key)
            if operation is not None and operation.status in UNDER_WAY:
                return target_of(operation)
        return AT_REST

    async def of_vms(self, whole: str | None, vms: Sequence[Object]) -> dict[str, Target]:
        """Return the targets of VMs by their ids; `whole` is the operation of their MCI, mostly the parent."""
        busy = {one.op: one for one in vms if one.op is not None}
        if not busy:
            return {}
        ns = vms[0].ns
        found = {} if whole is None else {one.id: one for one in await self._reader.children_of(Key(ns, whole))}
        targets: dict[str, Target] = {}
        for op, vm in busy.items():
            operation = found.get(op) or await self._reader.operation(Key(ns, op))
            targets[vm.id] = target_of(operation)
        return targets
