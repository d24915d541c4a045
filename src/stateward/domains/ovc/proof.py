"""Proof of what became of an action on a machine, for looks at VMs and firewalls.

A look right after a cancelled call may find the machine on its way, or show what was before the call. Neither proves
anything: an operation that ends with the look waits until the machine is at rest, and what is shown is younger than the
call. A reset leaves no power state behind and is known by its token.

Invariant: NOT_DONE is only told of a machine that is at rest, and of a reset whose token its node does not show.
"""

import asyncio

from stateward.domains.ovc.nodes import Hypervisor, Power
from stateward.engine import Job, ObservedOutcome

SETTLE_TIMEOUT_S = 15.0
"""How many seconds a look that ends an operation waits, at most, for a machine that is changing."""


async def observed_power(node: Hypervisor, key: str, job: Job) -> Power:
    """Return what a machine is; where the operation ends with it, what it is at rest."""
    if not job.is_ending:
        return await node.get_power(key)
    await _wait_for_lag(node, job)
    return await node.get_settled_power(key, SETTLE_TIMEOUT_S)


async def _wait_for_lag(node: Hypervisor, job: Job) -> None:
    """Wait, where the operation ends with a look, until what the node shows is younger than the call."""
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
