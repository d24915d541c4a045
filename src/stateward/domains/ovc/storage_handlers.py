"""Handlers of disks and images."""

from collections.abc import Awaitable, Callable
from typing import Any

from stateward.domains.ovc.model import DiskSpec, ImageSpec, disk_seen, file_name, read_spec, vm_seen
from stateward.domains.ovc.nodes import AttachedDisk, DiskStore, Hypervisor, NodeRegistry
from stateward.engine import Handler, Job, Kind, ObservedOutcome, Rules
from stateward.engine.kinds import EndHook, Guard, LockSet
from stateward.lifecycle import Lifecycle
from stateward.store.records import Key


async def do_nothing(_: Job) -> None:
    """Do nothing: the action only changes records."""


async def report_done(_: Job) -> ObservedOutcome:
    """Report the outcome of an action that only changes records: done."""
    return ObservedOutcome.DONE


class DiskHandlers:
    """Handlers of disks; an action on a VM's disk runs in the VM's queue."""

    def __init__(self, nodes: NodeRegistry, disk_store: DiskStore) -> None:
        self._nodes, self._disk_store = nodes, disk_store

    def kind(self, lifecycle: Lifecycle, guard: Guard, lock_set: LockSet, on_end: EndHook) -> Kind:
        """Return the kind of disks, with its handlers."""
        runs: dict[str, Callable[[Job], Awaitable[Any]]] = {
            "create": self._create,
            "delete": self._detach,
            "restore": self._attach,
            "destroy": self._destroy,
        }
        handlers = {action: Handler(run, self._observe) for action, run in runs.items()}
        of_vms = Rules(delegated=("assign", "attach", "detach"))  # a VM's operation moves its disks
        return Kind(lifecycle, handlers, guard=guard, lock_set=lock_set, on_end=on_end, general=False, rules=of_vms)

    async def _create(self, job: Job) -> None:
        await self._disk_store.create(file_name(job.claim.object), read_spec(job.claim.object, DiskSpec).gib)

    async def _detach(self, job: Job) -> None:
        there = await self._attached_to(job)
        if there is not None:
            node, key, disk = there
            await node.detach(key, disk)

    async def _attach(self, job: Job) -> None:
        there = await self._attached_to(job)
        if there is not None:
            node, key, disk = there
            await node.attach(key, disk)

    async def _destroy(self, job: Job) -> None:
        await self._detach(job)
        await self._disk_store.remove(file_name(job.claim.object))

    async def _attached_to(self, job: Job) -> tuple[Hypervisor, str, AttachedDisk] | None:
        """Return the node and machine that have the disk attached, if its VM has power."""
        seen = disk_seen(job.claim.object)
        vm = await self._nodes.reader.object(Key(job.ns, seen.vm)) if seen.vm else None
        if vm is None or not vm_seen(vm).machine:
            return None
        node = await self._nodes.get(job.ns, vm_seen(vm).node)
        file = self._disk_store.path_of(file_name(job.claim.object))
        return node, vm_seen(vm).machine, AttachedDisk(job.object, file, seen.slot)

    async def _observe(self, job: Job) -> ObservedOutcome:
        kept = await self._disk_store.exists(file_name(job.claim.object))
        if job.action in ("create", "destroy") and kept == (job.action == "create"):
            return ObservedOutcome.DONE
        there = None if job.action == "create" else await self._attached_to(job)
        if there is None:
            return ObservedOutcome.NOT_DONE
        node, key, disk = there
        has = await node.has_disk(key, disk)
        if job.action == "destroy":
            return ObservedOutcome.NOT_DONE if has else ObservedOutcome.REPEATABLE
        return ObservedOutcome.DONE if has == (job.action == "restore") else ObservedOutcome.NOT_DONE


class ImageHandlers:
    """Handlers of images."""

    def __init__(self, disk_store: DiskStore) -> None:
        self._disk_store = disk_store

    def kind(self, lifecycle: Lifecycle, guard: Guard, lock_set: LockSet, on_end: EndHook) -> Kind:
        """Return the kind of images, with its handlers."""
        handlers = {action: Handler(do_nothing, report_done) for action in ("disable", "enable", "delete", "restore")}
        runs = {"create": self._create, "destroy": self._destroy}
        handlers |= {action: Handler(run, self._observe) for action, run in runs.items()}
        return Kind(lifecycle, handlers, guard=guard, lock_set=lock_set, on_end=on_end, general=False)

    async def _create(self, job: Job) -> None:
        await self._disk_store.create_image(file_name(job.claim.object), read_spec(job.claim.object, ImageSpec).source)

    async def _destroy(self, job: Job) -> None:
        await self._disk_store.remove(file_name(job.claim.object))

    async def _observe(self, job: Job) -> ObservedOutcome:
        kept = await self._disk_store.exists(file_name(job.claim.object))
        return ObservedOutcome.DONE if kept == (job.action == "create") else ObservedOutcome.NOT_DONE
