"""Evidence of the outcome of an action on a machine, for VMs and firewalls.

An observation right after a cancelled call may find the machine changing, or show the state before the call. Neither
proves anything: an operation that ends with the observation waits until the machine has settled and the observation is
younger than the call. A reset leaves no power state behind; its token proves it.

The engine ends an operation at its deadline without knowing the outcome. So a live worker stops the work a little
earlier, asks the node, and ends the action as observed: done after all, or back in its previous state. The journal
names the healer as the actor.

Invariant: NOT_DONE is only returned for a settled machine, or for a reset whose token its node does not show.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from stateward.domains.ovc.nodes import Hypervisor, NodeRegistry, Power
from stateward.engine import Ending, Job, ObservedOutcome
from stateward.lifecycle import FAILED, HEALER

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


Run = Callable[[Job], Awaitable[Any]]
Observe = Callable[[Job], Awaitable[ObservedOutcome | Ending]]

OBSERVE_SHARE = 0.1
"""The share of an action's time that is kept for the observation."""


def run_until_deadline(run: Run, look: Observe) -> Run:
    """Return a handler that observes the outcome when its time is nearly over."""

    async def bounded(job: Job) -> Any:  # noqa: ANN401 - what the work returns
        within = job.claim.operation.within
        time_left_s = max(0.0, min(job.time_left_s, within) - within * OBSERVE_SHARE)
        try:
            async with asyncio.timeout(time_left_s) as limit:
                return await run(job)
        except TimeoutError:
            if not limit.expired():
                raise
        job.is_ending = True
        seen = await look(job)
        if isinstance(seen, Ending):
            return replace(seen, actor=HEALER)
        if seen is ObservedOutcome.DONE:
            return Ending(actor=HEALER)
        error = f"not done {within:g} s after it was begun, and found {seen}"
        return Ending(FAILED, HEALER, error=error)

    return bounded
