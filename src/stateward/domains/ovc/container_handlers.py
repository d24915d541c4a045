"""Handlers of accounts and cloudspaces: delete, restore and destroy include their children.

An account is only a record. A cloudspace has a firewall, which starts before its children and stops after them.
"""

from collections.abc import Callable, Sequence
from functools import partial

from stateward.domains.ovc.fan_out import HALF_DONE, FanOut, none_done, run_on_all
from stateward.domains.ovc.firewalls import Firewalls
from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, DISK, IMAGE, VM
from stateward.domains.ovc.model import cloudspace_seen, read_seen, vm_seen
from stateward.domains.ovc.nodes import NodeRegistry, Power
from stateward.domains.ovc.proof import Run, run_until_deadline
from stateward.domains.ovc.storage_handlers import do_nothing, report_done
from stateward.engine import Ending, Handler, Job, Kind, ObservedOutcome, Permanent, Request, Rules
from stateward.engine.kinds import EndHook, Guard, LockSet
from stateward.engine.queries import list_all
from stateward.lifecycle import CONTROLLER, Lifecycle
from stateward.store.filters import Selector
from stateward.store.records import Object, to_json

CHILD_KINDS = {CLOUDSPACE.kind: (VM,), ACCOUNT.kind: (CLOUDSPACE, DISK, IMAGE)}
"""The kinds of children in the order in which they are removed: VMs before the images that they use."""

REMOVALS = Rules(removes_below=("delete", "destroy"))
"""The actions that remove what is below their object, too."""

OUT = frozenset({"DELETED", "TOBEDELETED", "DESTROYED"})
UNTOUCHED = frozenset({"VIRTUAL", "MODELED", "ERROR"})
"""States that cannot be deleted to the recycle bin: not created, or incomplete. They stay below the parent."""


class ContainerHandlers:
    """Handlers of accounts and cloudspaces."""

    def __init__(self, nodes: NodeRegistry) -> None:
        self._nodes, self._firewalls = nodes, Firewalls(nodes)

    def accounts(self, lifecycle: Lifecycle, guard: Guard, lock_set: LockSet, on_end: EndHook) -> Kind:
        """Return the kind of accounts, with its handlers."""
        handlers = _record_only_handlers(lifecycle) | {
            action: Handler(self._apply_to_children, cancelled=self._observe_cancelled)
            for action in ("delete", "restore", "destroy")
        }
        return Kind(lifecycle, handlers, guard=guard, lock_set=lock_set, on_end=on_end, rules=REMOVALS)

    def cloudspaces(self, lifecycle: Lifecycle, guard: Guard, lock_set: LockSet, on_end: EndHook) -> Kind:
        """Return the kind of cloudspaces, with its handlers."""
        walls = self._firewalls
        powering: dict[str, Run] = {
            "deploy": walls.power_on,
            "resume": walls.power_on,
            "pause": walls.power_off,
            "reset": walls.reset,
        }
        handlers = _record_only_handlers(lifecycle) | {
            **{
                action: Handler(run_until_deadline(run, walls.observe), walls.observe)
                for action, run in powering.items()
            },
            "delete": Handler(self._take_down, cancelled=self._observe_cancelled),
            "restore": Handler(self._bring_back, cancelled=self._observe_cancelled),
            "destroy": Handler(self._take_down, cancelled=self._observe_cancelled),
            "place firewall": Handler(walls.place, cancelled=walls.observe_placement),
        }
        return Kind(lifecycle, handlers, guard=guard, lock_set=lock_set, on_end=on_end, rules=REMOVALS)

    async def _take_down(self, job: Job) -> None:
        await self._apply_to_children(job)
        await self._firewalls.power_off(job)

    async def _bring_back(self, job: Job) -> None:
        """Restore a cloudspace; if its children fail, its firewall is stopped again."""
        await job.once("firewall", lambda: self._firewalls.power_on(job))
        try:
            await self._apply_to_children(job)
        except Permanent:
            await self._firewalls.power_off(job)
            raise

    async def _observe_cancelled(self, job: Job) -> ObservedOutcome | Ending:
        """Return the outcome of a cancelled action: done, not done if nothing changed, or half done."""
        record, power = job.claim.object, Power.OFF
        had_power = wants_power = False
        if record.kind == CLOUDSPACE.kind:
            power, wants_power = await self._firewalls.get_power(job), job.action == "restore"
            had_power = bool(cloudspace_seen(record).machine) and not wants_power
        if power is (Power.ON if had_power else Power.OFF) and await none_done(job, self._nodes.reader):
            return ObservedOutcome.NOT_DONE
        if power is Power.UNKNOWN:
            return ObservedOutcome.UNKNOWN
        left = [child for kind in CHILD_KINDS[record.kind] for child in await self._children(job, kind.kind)]
        return ObservedOutcome.DONE if not left and power is (Power.ON if wants_power else Power.OFF) else HALF_DONE

    async def _apply_to_children(self, job: Job) -> None:
        """Run the action on all children that it concerns; fails if one child fails."""
        args, who = to_json({"along": job.object} if job.action == "delete" else {}), job.claim.operation.who

        def make_request(child: Object) -> Request:
            return Request(job.ns, child.id, job.action, "", actor=CONTROLLER, who=who, args=args)

        for lifecycle in CHILD_KINDS[job.claim.object.kind]:
            left = partial(self._children, job, lifecycle.kind)
            fan_out = FanOut(left, make_request, is_ready=_clones_first)
            failed = (await run_on_all(job, lifecycle.kind, fan_out, self._nodes.reader)).failed
            if failed:
                some = "; ".join(f"{id_}: {why}" for id_, why in list(failed.items())[:5])
                raise Permanent(f"{len(failed)} of its {lifecycle.kind} could not {job.action}: {some}")

    async def _children(self, job: Job, kind: str) -> Sequence[Object]:
        """Return the children that the action concerns, and busy ones that it may concern afterwards."""
        children, concerned = list_all(self._nodes.reader, Selector(job.ns, kind, job.object)), _concerned(job)
        waits = job.action != "restore"
        return [child async for child in children if concerned(child) or (waits and child.op is not None)]


def _record_only_handlers(lifecycle: Lifecycle) -> dict[str, Handler]:
    """Return handlers for actions that only change records."""
    return {action: Handler(do_nothing, report_done) for action in lifecycle.actions}


def _concerned(job: Job) -> Callable[[Object], bool]:
    """Return the predicate for the children that the action concerns; a restore: those that were deleted with it."""
    match job.action:
        case "restore":
            return lambda child: (
                child.state in OUT and (stay := read_seen(child).bin) is not None and stay.along == job.object
            )
        case "delete":
            return lambda child: child.state not in OUT | UNTOUCHED
        case _:
            return lambda child: child.state != "DESTROYED"


def _clones_first(child: Object, left: Sequence[Object]) -> bool:
    """Tell whether a VM has no clones left among the remaining objects."""
    if child.kind != VM.kind:
        return True
    clones = set(vm_seen(child).clones)
    return not any(other.id in clones for other in left)
