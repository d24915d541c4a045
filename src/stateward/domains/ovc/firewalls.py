"""The virtual firewall of a cloudspace: a machine on one of the nodes that runs while the cloudspace is deployed.

Its configuration is in the records, so it needs no disk. To move, it starts on the other node before it stops here.
"""

from stateward.domains.ovc.lifecycle import CloudspaceState
from stateward.domains.ovc.model import CloudspaceSpec, cloudspace_seen, machine_key, read_spec
from stateward.domains.ovc.nodes import NodeMachine, NodeRegistry, Power
from stateward.domains.ovc.proof import judge_power, judge_reset, observed_power, placed_power
from stateward.engine import Job, ObservedOutcome

FIREWALL_SIZE = "tiny"
FIREWALL_ON_STATES = (CloudspaceState.DEPLOYED, CloudspaceState.DISABLED)
"""The states of a cloudspace in which its firewall runs."""

EXPECTED_POWER = {"deploy": Power.ON, "resume": Power.ON, "pause": Power.OFF}


class Firewalls:
    """Starts, stops, resets and moves firewalls, for the handlers of cloudspaces."""

    def __init__(self, nodes: NodeRegistry) -> None:
        self._nodes = nodes

    async def power_on(self, job: Job) -> None:
        """Start a firewall."""
        seen = cloudspace_seen(job.claim.object)
        await self._nodes.stop_stale(job.ns, seen)
        await self._start(job, seen.node, seen.machine)

    async def power_off(self, job: Job) -> None:
        """Stop a firewall."""
        seen = cloudspace_seen(job.claim.object)
        await self._nodes.stop_machine(job.ns, seen)
        await self._nodes.stop_stale(job.ns, seen)

    async def reset(self, job: Job) -> None:
        """Boot a firewall again; a stopped one is started."""
        seen = cloudspace_seen(job.claim.object)
        if job.origin == CloudspaceState.PAUSED or seen.machine == machine_key(job.object, job.key.id):
            await self.power_on(job)
        else:
            await (await self._nodes.get(job.ns, seen.node)).reset(seen.machine, job.key.id)

    async def place(self, job: Job) -> None:
        """Move a firewall to its new node; without a node it is stopped until there is one."""
        seen = cloudspace_seen(job.claim.object)
        await self._nodes.stop_stale(job.ns, seen)
        if seen.to:
            await self._start(job, seen.to, machine_key(job.object, job.key.id))
        await self._nodes.stop_machine(job.ns, seen)

    async def observe(self, job: Job) -> ObservedOutcome:
        """Observe whether a firewall has the power that the job leads to."""
        seen, wanted = cloudspace_seen(job.claim.object), EXPECTED_POWER.get(job.action)
        if wanted is None:
            if not seen.machine:
                return ObservedOutcome.REPEATABLE
            node = await self._nodes.get(job.ns, seen.node)
            if seen.machine == machine_key(job.object, job.key.id):
                return judge_power(await observed_power(node, seen.machine, job), Power.ON)
            return await judge_reset(node, seen.machine, job)
        return judge_power(await self.get_power(job), wanted)

    async def get_power(self, job: Job) -> Power:
        """Return the power of a cloudspace's firewall; OFF without a machine."""
        seen = cloudspace_seen(job.claim.object)
        return await placed_power(self._nodes, seen.node, seen.machine, job)

    async def observe_placement(self, job: Job) -> ObservedOutcome:
        """Observe whether a firewall runs on its new node and no longer on the old one."""
        seen = cloudspace_seen(job.claim.object)
        here = await self.get_power(job)
        key = machine_key(job.object, job.key.id) if seen.to else ""
        there = await placed_power(self._nodes, seen.to, key, job)
        if here is Power.OFF and there is (Power.ON if seen.to else Power.OFF):
            return ObservedOutcome.DONE
        return (
            ObservedOutcome.NOT_DONE if here is (Power.ON if seen.machine else Power.OFF) else ObservedOutcome.UNKNOWN
        )

    async def _start(self, job: Job, node: str, machine: str) -> None:
        name = f"{read_spec(job.claim.object, CloudspaceSpec).name} firewall"
        await (await self._nodes.get(job.ns, node)).start(NodeMachine(machine, name, FIREWALL_SIZE))
