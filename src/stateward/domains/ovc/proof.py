"""Evidence of the outcome of an action on a machine, for VMs and firewalls.

An observation right after a cancelled call may find the machine changing, or show the state before the call. Neither
proves anything: an operation that ends with the observation waits until the machine has settled and the observation is
younger than the call. A reset leaves no power state behind; its token proves it.

Invariant: NOT_DONE is only returned for a settled machine, or for a reset whose token its node does not show.
"""

import asyncio

from stateward.domains.ovc.nodes import Hypervisor, NodeRegistry, Power
from stateward.engine import Job, ObservedOutcome

SETTLE_TIMEOUT_S = 15.0
"""Seconds that an observation at the end of an operation waits for a changing machine."""


async def observed_power(node: Hypervisor, key: str, job: Job) -> Power:
    """Return the power of a machine; at the end of an operation, wait until it has settled."""
    if not job.is_ending:
        return await node.get_power(key)
    await _wait_for_lag(node, job)
    return await node.get_settled_power(key, SETTLE_TIMEOUT_S)


async def placed_power(nodes: NodeRegistry, node: str, machine: str, job: Job) -> Power:
    """Return the power of the machine of a VM or a firewall; OFF without a machine."""
    return await observed_power(await nodes.get(job.ns, node), machine, job) if machine else Power.OFF


async def _wait_for_lag(node: Hypervisor, job: Job) -> None:
    """At the end of an operation, wait until the node's listing is younger than the call."""
    if job.is_ending:
        await asyncio.sleep(node.lag)


def judge_power(power: Power, wanted: Power) -> ObservedOutcome:
    """Return what a machine's power proves about an action that was to bring it to another one."""
    match power:
        case Power.UNKNOWN:
            return ObservedOutcome.UNKNOWN
        case Power.CHANGING:
            return ObservedOutcome.REPEATABLE
        case _:
            return ObservedOutcome.DONE if power is wanted else ObservedOutcome.NOT_DONE


async def judge_reset(node: Hypervisor, key: str, job: Job) -> ObservedOutcome:
    """Return what a node's tokens prove about a reset."""
    await _wait_for_lag(node, job)
    was_reset = await node.was_reset(key, job.key.id)
    if was_reset is None:
        return ObservedOutcome.REPEATABLE
    if not was_reset:
        return ObservedOutcome.NOT_DONE
    return judge_power(await observed_power(node, key, job), Power.ON)
