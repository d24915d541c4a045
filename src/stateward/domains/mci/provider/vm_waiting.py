"""Waiting for VMs at their providers, with reports of a provider that does not answer."""

import asyncio
from collections.abc import Awaitable, Callable

from stateward.aio.coalescer import CallWitness
from stateward.domains.mci.provider.evidence import Evidence, Existence
from stateward.domains.mci.provider.provider_client import ProviderClient
from stateward.engine import Job

ClientOf = Callable[[str, str], Awaitable[ProviderClient]]
"""Returns the client of a connection that leads to a lane; raises if the connection leads elsewhere."""

GrantedClientOf = Callable[[str, str, str], Awaitable[ProviderClient]]
"""Returns the client of a connection and a lane for a namespace that has a grant; raises for any other namespace."""

REPORT_FIRST_S, REPORT_MAX_S = 10.0, 3_600.0
"""Intervals of reports that a provider does not answer: the first, and the longest."""


def watch_vm_call(job: Job, name: str, uid: str) -> CallWitness:
    """Return the witness of a call, which goes to the VM's region: the lane has its name."""
    return job.watch_call(name, at=job.claim.work.lane, target=uid)


async def wait_for_evidence(
    client: ProviderClient, job: Job, uid: str, is_last: Callable[[Evidence], bool]
) -> Evidence:
    """Wait for the final evidence; report at growing intervals why the provider does not answer.

    Most actions are done at the first observation, and there is nothing to report before it: it needs no time-out.
    """
    pause, trouble = REPORT_FIRST_S, ""

    def watch(evidence: Evidence) -> bool:
        nonlocal trouble
        trouble = evidence.problem if evidence.existence is Existence.UNKNOWN else ""
        return is_last(evidence)

    evidence = await client.observe(uid)
    if watch(evidence):
        return evidence
    while True:
        try:
            async with asyncio.timeout(pause) as limit:
                return await client.wait_for_next(uid, watch)
        except TimeoutError:
            if not limit.expired():
                raise
        if trouble:
            await job.report_trouble(trouble)
        pause = min(2 * pause, REPORT_MAX_S)
