"""Handlers of adoptions: a machine that others have created gets our key, and its VM the state that it is in.

The key is put on the machine after the VM is stored, so a crash at any point repeats the same call with the same key.
An adoption that cannot succeed takes the key off again before it fails: the machine is left as it was found.
"""

from typing import NamedTuple

from stateward.domains.mci.control.machine_claims import claim_machine, machine_of
from stateward.domains.mci.lifecycle import VmState
from stateward.domains.mci.model import MachineClaim, seen_of, vm_of
from stateward.domains.mci.provider.evidence import Evidence, Existence, if_recent, is_hopeless, is_reached
from stateward.domains.mci.provider.provider_client import ProviderClient
from stateward.domains.mci.provider.vm_waiting import ClientOf, GrantedClientOf, wait_for_evidence, watch_vm_call
from stateward.drivers import AlreadyDone, CallAccepted, MachineHandle, MachineState
from stateward.engine import Denied, Ending, Engine, Job, ObservedOutcome, Permanent, Temporary
from stateward.lifecycle import CONTROLLER
from stateward.plugin.outcomes import raise_for_outcome
from stateward.store.records import Key, to_json


class ReleasedKey(NamedTuple):
    """A key that was taken off its machine, and when, by the client's clock."""

    client: ProviderClient
    key: str
    at: float


class AdoptionHandlers:
    """Adopts machines for VMs, and releases them."""

    engine: Engine

    def __init__(self, client_of: ClientOf, adopting_client_of: GrantedClientOf) -> None:
        self._client_of, self._adopting_client_of = client_of, adopting_client_of

    async def adopt(self, job: Job) -> Ending:
        """Claim a machine, put the VM's key on it, and wait until a listing shows it at rest."""
        client = await self._adopting_client_of(vm_of(job.claim.object).connection, job.claim.work.lane, job.ns)
        vm = vm_of(job.claim.object)
        wanted = MachineClaim(vm.adopted, machine_of(job.claim.object)[0], job.ns, job.object, vm.uid)
        try:
            held = await claim_machine(self.engine, wanted)
        except Denied as error:
            raise Temporary(f"machine {vm.adopted} is being claimed by another VM: {error}") from error
        if held is not None:
            whose = f"VM {held.vm} of this namespace" if held.ns == job.ns else "a VM of another namespace"
            raise Permanent(f"machine {vm.adopted} has been adopted by {whose}")
        handle = _handle(job)
        raise_for_outcome(await client.adopt(handle, watch_vm_call(job, "adopt", handle.key)))
        # A listing from here on shows whether another server has replaced the key in the same moment.
        since = client.clock()
        evidence = await wait_for_evidence(client, job, handle.key, lambda seen: _is_last(if_recent(seen, since)))
        if evidence.observation is not None and is_reached("adopt", evidence):
            seen = to_json(seen_of(evidence.observation))
            if evidence.observation.state is MachineState.SUSPENDED:
                return Ending("adopted suspended", CONTROLLER, seen=seen)
            return Ending(seen=seen)
        raise_for_outcome(await client.release(handle))
        raise Permanent(f"machine {handle.native_id} {_why_not(evidence)}")

    async def observe(self, job: Job) -> ObservedOutcome:
        """Return what became of an adoption; one that ends now takes the key off again."""
        if not job.is_ending:
            return ObservedOutcome.REPEATABLE  # a machine that has the key already gets no other
        if job.is_untried:
            return ObservedOutcome.NOT_DONE
        client = await self._client_of(vm_of(job.claim.object).connection, job.claim.work.lane)
        outcome = await client.release(_handle(job))
        is_free = isinstance(outcome, CallAccepted | AlreadyDone) and not job.is_calling
        return ObservedOutcome.NOT_DONE if is_free else ObservedOutcome.UNKNOWN

    async def release(self, ns: str, vm: str) -> ReleasedKey | None:
        """Take the key of a VM off its machine; None if it has no machine."""
        record = await self.engine.store.reader.object(Key(ns, vm))
        if record is None or record.removed or record.state == VmState.TERMINATED:
            return None
        if record.op is not None:
            raise Temporary(f"{vm} has a running operation, {record.op}")
        client, uid = await self._client_of(vm_of(record).connection, vm_of(record).lane), vm_of(record).uid
        raise_for_outcome(await client.release(MachineHandle(uid, machine_of(record)[1] or None)))
        return ReleasedKey(client, uid, client.clock())


async def wait_until_unlisted(released: ReleasedKey) -> None:
    """Wait until listings that are newer than the release do not show the key, or show that the machine has ended."""

    def is_unlisted(seen: Evidence) -> bool:
        evidence = if_recent(seen, released.at)
        return evidence.existence is Existence.ABSENT or is_reached("terminate", evidence)

    await released.client.wait_for(released.key, is_unlisted)


def _handle(job: Job) -> MachineHandle:
    vm = vm_of(job.claim.object)
    return MachineHandle(vm.uid, vm.adopted, job.key.id)


def _is_last(evidence: Evidence) -> bool:
    return evidence.existence is Existence.ABSENT or is_reached("adopt", evidence) or is_hopeless("adopt", evidence)


def _why_not(evidence: Evidence) -> str:
    if evidence.observation is None:
        return "does not carry the key any more: it has gone, or another server has adopted it"
    return f"is {evidence.observation.native_state} at its provider"


__all__ = ["AdoptionHandlers", "ReleasedKey", "wait_until_unlisted"]
