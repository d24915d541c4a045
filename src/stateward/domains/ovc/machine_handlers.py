"""Handlers of VMs: each asks the VM's node; calls are idempotent, so they are repeated after a crash.

A VM that is started becomes a new machine on its node; its key is made from the operation's id. Machines that failures
may have left behind are recorded, and stopped before anything else.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from stateward.domains.ovc import model
from stateward.domains.ovc.container_handlers import REMOVALS
from stateward.domains.ovc.end_hooks import CLEAN_RESULT
from stateward.domains.ovc.lifecycle import DiskState, OvcVmState
from stateward.domains.ovc.node_privacy import LANE_PREFIX
from stateward.domains.ovc.nodes import AttachedDisk, DiskStore, Hypervisor, NodeMachine, NodeRegistry, Power
from stateward.domains.ovc.proof import judge_power, judge_reset, placed_power, run_until_deadline
from stateward.domains.ovc.storage_handlers import do_nothing
from stateward.engine import Ending, Handler, Job, Kind, ObservedOutcome, Permanent
from stateward.engine.kinds import EndHook, Guard, LockSet, Route
from stateward.lifecycle import FAILED, Lifecycle
from stateward.store.records import Key, Object

ATTACHED_STATES = frozenset({DiskState.ASSIGNED, DiskState.ASSIGNING, DiskState.DETACHING, DiskState.DELETING})
"""The states in which a disk of a VM is attached to its machine.

While the VM is started or moved, an operation that detaches the disk waits behind that in the queue, and may still be
cancelled.
"""

PROGRESS_STEP = 0.1
"""The share of a migration between two reports of progress."""

EXPECTED_POWER = {
    "deploy": Power.ON,
    "start": Power.ON,
    "resume": Power.ON,
    "pause": Power.FROZEN,
    "stop": Power.OFF,
    "delete": Power.OFF,
}


class OvcVmHandlers:
    """Handlers of VMs."""

    def __init__(self, nodes: NodeRegistry, disk_store: DiskStore) -> None:
        self._nodes, self._disk_store = nodes, disk_store

    def kind(self, lifecycle: Lifecycle, guard: Guard, lock_set: LockSet, on_end: EndHook) -> Kind:
        """Return the kind of VMs, with its handlers."""
        runs: dict[str, Callable[[Job], Awaitable[Any]]] = {
            "deploy": self._deploy,
            "start": self._start,
            "stop": self._stop,
            "pause": self._pause,
            "resume": self._resume,
            "reboot": self._reboot,
            "reset": self._reset,
            "add disk": self._add_disk,
            "attach disk": self._attach_disk,
            "detach disk": self._detach_disk,
            "delete": self._stop,
            "restore": do_nothing,  # the files of its disks have stayed
            "destroy": self._destroy,
        }
        handlers = {
            action: Handler(run_until_deadline(run, self._observe), self._observe) for action, run in runs.items()
        }
        handlers["migrate"] = Handler(self._migrate, self._observe_move)
        return Kind(lifecycle, handlers, route_of, guard, lock_set, on_end, general=False, rules=REMOVALS)

    # --- power -------------------------------------------------------------------------------------------------------

    async def _deploy(self, job: Job) -> None:
        await job.once("boot disk", lambda: self._make_boot_disk(job))
        await self._start(job)

    async def _make_boot_disk(self, job: Job) -> None:
        spec = model.read_spec(job.claim.object, model.OvcVmSpec)
        boot = await self._file_name(job.ns, model.boot_disk_id(job.object))
        if spec.clone_of:
            await self._disk_store.clone(
                boot, await self._file_name(job.ns, model.boot_disk_id(spec.clone_of)), spec.gib
            )
        else:
            await self._disk_store.create(boot, spec.gib, await self._file_name(job.ns, spec.image))

    async def _start(self, job: Job) -> None:
        seen = model.vm_seen(job.claim.object)
        await self._nodes.stop_stale(job.ns, seen)
        node = await self._nodes.get(job.ns, seen.node)
        await node.start(await self._machine(job, seen, seen.machine))

    async def _machine(self, job: Job, seen: model.OvcVmSeen, key: str) -> NodeMachine:
        spec = model.read_spec(job.claim.object, model.OvcVmSpec)
        disks = [await self._disk(job.ns, id_) for id_ in seen.disks]
        attached = tuple(
            self._attached_disk(disk)
            for disk in disks
            if (
                disk.state in ATTACHED_STATES
                or (disk.state == DiskState.DESTROYING and model.disk_seen(disk).bin is None)
            )
        )
        image = await self._nodes.reader.object(Key(job.ns, spec.image))
        boots_disk = image is not None and model.read_spec(image, model.ImageSpec).source != model.BUILT_IN_IMAGE
        return NodeMachine(key, spec.name, spec.size, attached, boots_disk)

    def _attached_disk(self, disk: Object) -> AttachedDisk:
        """Return a disk as it is attached to its VM."""
        file = self._disk_store.path_of(model.file_name(disk))
        return AttachedDisk(disk.id, file, model.disk_seen(disk).slot, model.read_spec(disk, model.DiskSpec).boot)

    async def _disk(self, ns: str, id_: str) -> Object:
        disk = await self._nodes.reader.object(Key(ns, id_))
        if disk is None:
            raise Permanent(f"there is no disk {id_!r}")
        return disk

    async def _file_name(self, ns: str, id_: str) -> str:
        """Return the name of the file of a disk or an image."""
        record = await self._nodes.reader.object(Key(ns, id_))
        if record is None:
            raise Permanent(f"there is no disk or image {id_!r}")
        return model.file_name(record)

    async def _disk_files(self, ns: str, seen: model.OvcVmSeen) -> list[str]:
        """Return the names of the files of a VM's disks; disks whose record was pruned are left out."""
        disks = await self._nodes.reader.objects([Key(ns, id_) for id_ in seen.disks])
        return [model.file_name(disk) for disk in disks.values()]

    async def _stop(self, job: Job) -> None:
        seen = model.vm_seen(job.claim.object)
        await self._nodes.stop_machine(job.ns, seen)
        await self._nodes.stop_stale(job.ns, seen)

    async def _pause(self, job: Job) -> None:
        node, key = await self._node_and_machine(job)
        await node.pause(key)

    async def _resume(self, job: Job) -> None:
        node, key = await self._node_and_machine(job)
        await node.resume(key)

    async def _reboot(self, job: Job) -> None:
        """Boot the machine again; a frozen one is resumed first."""
        node, key = await self._node_and_machine(job)
        if job.origin == OvcVmState.PAUSED:
            await node.resume(key)
        await node.reset(key, job.key.id)

    async def _reset(self, job: Job) -> None:
        node, key = await self._node_and_machine(job)
        await node.reset(key, job.key.id)

    async def _node_and_machine(self, job: Job) -> tuple[Hypervisor, str]:
        """Return the node and the machine of a VM that has power."""
        seen = model.vm_seen(job.claim.object)
        return await self._nodes.get(job.ns, seen.node), seen.machine

    # --- disks -------------------------------------------------------------------------------------------------------

    async def _add_disk(self, job: Job) -> None:
        disk = model.added_disk_id(job.key.id)
        record = await self._disk(job.ns, disk)
        await job.once(
            "disk",
            lambda: self._disk_store.create(model.file_name(record), model.read_spec(record, model.DiskSpec).gib),
        )
        await self._attach_disk(job, disk)

    async def _attach_disk(self, job: Job, disk: str = "") -> None:
        if model.vm_seen(job.claim.object).machine:
            node, key = await self._node_and_machine(job)
            await node.attach(key, self._attached_disk(await self._disk(job.ns, disk or str(job.args["disk"]))))

    async def _detach_disk(self, job: Job) -> None:
        if model.vm_seen(job.claim.object).machine:
            node, key = await self._node_and_machine(job)
            await node.detach(key, self._attached_disk(await self._disk(job.ns, str(job.args["disk"]))))

    # --- removal -----------------------------------------------------------------------------------------------------

    async def _destroy(self, job: Job) -> None:
        """Stop, delete, destroy: each step is checkpointed, so that a crash goes on with the right one."""
        seen = model.vm_seen(job.claim.object)
        await self._step(job, "stop", lambda: self._nodes.stop_machine(job.ns, seen))
        await self._step(job, "delete", lambda: self._nodes.stop_stale(job.ns, seen))
        await self._step(job, "destroy", lambda: self._remove_disks(job.ns, seen))

    async def _step(self, job: Job, step: str, work: Callable[[], Awaitable[None]]) -> None:
        async def reported() -> None:
            await job.progress(step)
            await work()

        await job.once(step, reported)

    async def _remove_disks(self, ns: str, seen: model.OvcVmSeen) -> None:
        for name in await self._disk_files(ns, seen):
            await self._disk_store.remove(name)

    # --- migration ---------------------------------------------------------------------------------------------------

    async def _migrate(self, job: Job) -> Ending:
        seen = model.vm_seen(job.claim.object)
        if job.origin == OvcVmState.HALTED:
            return Ending()  # without power only its record moves
        source, target, machine = await self._ends_of_move(job, seen)
        try:
            reported = 0.0

            async def report(done: int, total: int) -> None:
                nonlocal reported
                share = done / total if total else 1.0
                if share >= reported + PROGRESS_STEP:
                    reported = share
                    await job.progress("moving", done, total)

            await source.move(seen.machine, target, machine, report)
        except Permanent as error:
            await job.progress("stopping the move")  # raises if another worker has taken the operation over
            return await self._stop_migration(job, str(error))
        return Ending()

    async def _ends_of_move(self, job: Job, seen: model.OvcVmSeen) -> tuple[Hypervisor, Hypervisor, NodeMachine]:
        """Return the node that a VM leaves, the node that it moves to, and the machine that it becomes there."""
        source, target = await self._nodes.get(job.ns, seen.node), await self._nodes.get(job.ns, seen.to)
        return source, target, await self._machine(job, seen, model.machine_key(job.object, job.key.id))

    async def _stop_migration(self, job: Job, why: str) -> Ending:
        """Stop a migration; it may have succeeded after all."""
        seen = model.vm_seen(job.claim.object)
        source, target, machine = await self._ends_of_move(job, seen)
        if await source.stop_moving(seen.machine, target, machine) and await source.has_moved(
            seen.machine, target, machine
        ):
            return Ending()
        return Ending(FAILED, result=CLEAN_RESULT, error=why)

    async def _observe_move(self, job: Job) -> ObservedOutcome | Ending:
        """Observe whether a VM has moved; if the operation ends with this observation, stop the migration."""
        seen, work = model.vm_seen(job.claim.object), job.claim.work
        if job.origin == OvcVmState.HALTED:
            return ObservedOutcome.DONE
        source, target, machine = await self._ends_of_move(job, seen)
        if await source.has_moved(seen.machine, target, machine):
            return ObservedOutcome.DONE
        goes_on = work.observe and not work.cancelled and job.time_left_s > 0.0
        if goes_on:
            return ObservedOutcome.NOT_DONE
        ending = await self._stop_migration(job, "cancelled")
        return ObservedOutcome.DONE if ending.event != FAILED else ObservedOutcome.NOT_DONE

    # --- observation -------------------------------------------------------------------------------------------------

    async def _observe(self, job: Job) -> ObservedOutcome:
        seen = model.vm_seen(job.claim.object)
        if job.action in ("add disk", "attach disk", "detach disk"):
            return await self._observe_disk(job, seen)
        if job.action in ("reboot", "reset"):
            node, key = await self._node_and_machine(job)
            return await judge_reset(node, key, job)
        if job.action in EXPECTED_POWER:
            return judge_power(
                await placed_power(self._nodes, seen.node, seen.machine, job), EXPECTED_POWER[job.action]
            )
        if job.action == "destroy":
            # Observe whether nothing is left; NOT_DONE only if the machine and all files are still there.
            judged = judge_power(await placed_power(self._nodes, seen.node, seen.machine, job), Power.OFF)
            if judged is not ObservedOutcome.DONE:
                return judged
            kept = await self._disk_files(job.ns, seen)
            left = [name for name in kept if await self._disk_store.exists(name)]
            if not left and not seen.stale_machines:
                return ObservedOutcome.DONE
            return ObservedOutcome.REPEATABLE if seen.machine or len(left) < len(kept) else ObservedOutcome.NOT_DONE
        return ObservedOutcome.NOT_DONE if job.action == "restore" else ObservedOutcome.REPEATABLE

    async def _observe_disk(self, job: Job, seen: model.OvcVmSeen) -> ObservedOutcome:
        adds = job.action == "add disk"
        id_ = model.added_disk_id(job.key.id) if adds else str(job.args["disk"])
        there = not adds or await self._disk_store.exists(await self._file_name(job.ns, id_))
        if adds and not (seen.machine and there):
            return ObservedOutcome.DONE if there else ObservedOutcome.NOT_DONE
        if not seen.machine:
            return ObservedOutcome.DONE
        node, disk = await self._nodes.get(job.ns, seen.node), await self._disk(job.ns, id_)
        has = await node.has_disk(seen.machine, self._attached_disk(disk))
        return ObservedOutcome.DONE if has == (job.action != "detach disk") else ObservedOutcome.NOT_DONE


def route_of(vm: Object, _action: str) -> Route:
    """Return the lane of a VM's node, whose limit can be set."""
    node = model.vm_seen(vm).node
    return Route("", f"{LANE_PREFIX}{node}") if node else Route()
