"""Handlers of nodes: register, maintenance, enable and decommission; a report says what became of each VM.

Maintenance moves the VMs away or stops them. The state of a moved VM does not change. A stopped VM is started when its
node is enabled again, and paused again if it was paused; `end_hooks` records it with the end of its own operation, so
that it is known however the maintenance ends. Firewalls move to another node, or wait for the next one.
"""

from collections.abc import Callable, Sequence

import msgspec

from stateward.domains.ovc.fan_out import FanOut, FanOutResult, observe_cancelled, run_on_all
from stateward.domains.ovc.firewalls import FIREWALL_ON_STATES
from stateward.domains.ovc.guards.node_guard import vm_action
from stateward.domains.ovc.lifecycle import CLOUDSPACE, VM, OvcVmState
from stateward.domains.ovc.model import DepartedVm, NodeFacts, NodeReport, PlacementSeen, cloudspace_seen, node_seen
from stateward.domains.ovc.nodes import NodeRegistry
from stateward.engine import Ending, Handler, Job, Kind, ObservedOutcome, Permanent, Request, Why
from stateward.engine.kinds import EndHook, Guard
from stateward.engine.queries import list_all
from stateward.lifecycle import CONTROLLER, FAILED, Lifecycle
from stateward.store.filters import Selector
from stateward.store.records import Object, to_json

V = OvcVmState
ABSENT_STATES = frozenset({V.VIRTUAL, V.DELETED, V.DESTROYED})
POWERED_STATES = (V.RUNNING, V.PAUSED)
MAX_MOVE_TRIES = 2


class NodeHandlers:
    """Handlers of nodes."""

    def __init__(self, nodes: NodeRegistry) -> None:
        self._nodes = nodes

    def kind(self, lifecycle: Lifecycle, guard: Guard, on_end: EndHook) -> Kind:
        """Return the kind of nodes, with its handlers."""
        handlers = {
            "register": Handler(self._register),
            "maintenance": Handler(self._start_maintenance, cancelled=self._observe_cancelled),
            "enable": Handler(self._enable, cancelled=self._observe_cancelled),
            "decommission": Handler(self._decommission, cancelled=self._observe_cancelled),
        }
        why = Why(fault=lambda node: node_seen(node).trouble)
        return Kind(lifecycle, handlers, guard=guard, on_end=on_end, general=False, why=why)

    async def _observe_cancelled(self, job: Job) -> ObservedOutcome | Ending:
        return await observe_cancelled(job, self._nodes.reader)

    async def _register(self, job: Job) -> None:
        trouble = await (await self._nodes.get(job.ns, job.object)).check()
        if trouble:
            raise Permanent(trouble)

    # --- drain -------------------------------------------------------------------------------------------------------

    async def _start_maintenance(self, job: Job) -> Ending:
        """Move the VMs away, or stop them; if one fails, the node stays in service and the report names it."""
        how = vm_action(job.args)
        action = "migrate" if how == "move" else "stop"
        emptied = await self._run_on_all(job, action, self._has_power, lambda vm: _request(job, vm, action))
        failed = emptied.failed or await self._firewalls_away(job)
        return _report_ending(NodeReport(f"maintenance ({how})", tuple(emptied.done), failed))

    async def _decommission(self, job: Job) -> Ending:
        """Move all VMs away; VMs that maintenance had stopped are started on other nodes."""
        stopped = {
            id_: departed for id_, departed in node_seen(job.claim.object).away.items() if departed.how == "stop"
        }
        moved = await self._run_on_all(
            job, "migrate", lambda vm: vm.state not in ABSENT_STATES, lambda vm: _request(job, vm, "migrate")
        )
        failed = moved.failed or await self._power_back(job, stopped, "") or await self._firewalls_away(job)
        return _report_ending(NodeReport("decommission", tuple(moved.done), failed))

    async def _firewalls_away(self, job: Job) -> dict[str, str]:
        """Move the firewalls of this node; without another node they are stopped."""
        gone = await self._run_on_all(
            job,
            "firewalls",
            lambda cloudspace: cloudspace.state in FIREWALL_ON_STATES or cloudspace.op is not None,
            lambda cloudspace: _request(job, cloudspace, "place firewall"),
            kind=CLOUDSPACE.kind,
        )
        return gone.failed

    # --- return ------------------------------------------------------------------------------------------------------

    async def _enable(self, job: Job) -> Ending:
        """Bring back the VMs that left for maintenance; one that cannot move stays where it is."""
        away = node_seen(job.claim.object).away
        moved = {id_ for id_, departed in away.items() if departed.how == "move"}

        def elsewhere(vm: Object) -> bool:
            return vm.id in moved and not _is_on(vm, job.object) and self._has_power(vm)

        returned = await self._run_on_all(
            job, "return", elsewhere, lambda vm: _request(job, vm, "migrate", node=job.object), everywhere=True
        )
        stopped = {id_: departed for id_, departed in away.items() if departed.how == "stop"}
        back = await self._run_on_all(
            job,
            "firewalls",
            lambda cloudspace: cloudspace.state in FIREWALL_ON_STATES and not cloudspace_seen(cloudspace).machine,
            lambda cloudspace: _request(job, cloudspace, "place firewall", node=job.object),
            kind=CLOUDSPACE.kind,
            everywhere=True,
        )
        failed = returned.failed | back.failed | await self._power_back(job, stopped, job.object)
        done = tuple(id_ for id_ in away if id_ not in failed)
        return Ending(result=to_json(NodeFacts(NodeReport("enable", done, failed))))

    async def _power_back(self, job: Job, stopped: dict[str, DepartedVm], node: str) -> dict[str, str]:
        """Start VMs that maintenance had stopped; pause those again that were paused."""
        where = {"node": node} if node else {}
        started = await self._run_on_all(
            job,
            "start",
            lambda vm: vm.id in stopped and vm.state in (V.HALTED, V.STARTING),
            lambda vm: _request(job, vm, "start", **where),
            everywhere=True,
        )
        again = {id_ for id_ in started.done if stopped[id_].state == V.PAUSED}
        paused = await self._run_on_all(
            job,
            "pause",
            lambda vm: vm.id in again and vm.state in (V.RUNNING, V.PAUSING),
            lambda vm: _request(job, vm, "pause"),
            everywhere=True,
        )
        return started.failed | paused.failed

    # --- targets -----------------------------------------------------------------------------------------------------

    def _has_power(self, vm: Object) -> bool:
        return vm.state in POWERED_STATES or vm.op is not None

    async def _run_on_all(
        self,
        job: Job,
        step: str,
        concerned: Callable[[Object], bool],
        ask: Callable[[Object], Request],
        *,
        kind: str = VM.kind,
        everywhere: bool = False,
    ) -> FanOutResult:
        """Run an action on the objects on the node or on their way to it; with `everywhere`, of the namespace."""

        async def left() -> Sequence[Object]:
            records = list_all(self._nodes.reader, Selector(job.ns, kind))
            return [
                record async for record in records if (everywhere or _is_on(record, job.object)) and concerned(record)
            ]

        return await run_on_all(job, step, FanOut(left, ask, MAX_MOVE_TRIES), self._nodes.reader)


def _is_on(record: Object, node: str) -> bool:
    seen = msgspec.json.decode(record.seen, type=PlacementSeen)
    return node in (seen.node, seen.to) and record.state not in ABSENT_STATES


def _request(job: Job, record: Object, action: str, **args: str) -> Request:
    who = job.claim.operation.who
    return Request(job.ns, record.id, action, "", actor=CONTROLLER, who=who, args=to_json(args))


def _report_ending(report: NodeReport) -> Ending:
    """End with a report; the action has failed if VMs or firewalls are left."""
    result = to_json(NodeFacts(report))
    if not report.failed:
        return Ending(result=result)
    some = "; ".join(f"{id_}: {why}" for id_, why in list(report.failed.items())[:5])
    return Ending(FAILED, result=result, error=f"{len(report.failed)} of its machines are still there: {some}")
