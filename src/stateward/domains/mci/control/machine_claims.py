"""Claims on machines: one VM at most has adopted a machine, in all namespaces of the deployment.

A mark at a provider is no lock: two servers that see no mark may both write one. So a VM claims the machine in the
store before it marks it. A claim whose VM is gone is void: the next VM takes it over, and the reconciler removes it.
"""

from contextlib import suppress
from hashlib import blake2b

from stateward.domains.mci import model
from stateward.domains.mci.lifecycle import CLAIM, VmState
from stateward.engine import AlreadyExists, Denied, Engine
from stateward.engine.queries import list_all
from stateward.lifecycle import CONTROLLER
from stateward.store.filters import Selector
from stateward.store.port import Reader
from stateward.store.records import Key, Object


async def claim_machine(engine: Engine, claim: model.MachineClaim) -> model.MachineClaim | None:
    """Claim a machine for a VM; returns the claim of another VM that holds it, or None.

    Raises a denial if another request has changed the claim at the same time.
    """
    digest = blake2b(f"{claim.lane} {claim.native_id}".encode(), digest_size=16).hexdigest()
    key = Key(model.DEPLOYMENT_NS, model.record_id("machine", digest))
    record = await engine.store.reader.object(key)
    if record is None or record.removed:
        with suppress(AlreadyExists):
            await engine.create(*key, CLAIM.kind, "register", spec=claim, actor=CONTROLLER)
            return None
        record = await engine.record(*key)
    held = model.machine_claim(record)
    if held == claim:
        return None
    if await _is_valid(engine.store.reader, held):
        return held
    await engine.act(*key, "change", spec=claim, actor=CONTROLLER, version=record.version)
    return None


async def remove_void_claims(engine: Engine) -> None:
    """Remove the claims whose VMs are gone."""
    reader = engine.store.reader
    async for record in list_all(reader, Selector(model.DEPLOYMENT_NS, CLAIM.kind)):
        if not await _is_valid(reader, model.machine_claim(record)):
            with suppress(Denied):  # another VM takes it over
                await engine.act(*record.key, "remove", actor=CONTROLLER, version=record.version)


async def _is_valid(reader: Reader, claim: model.MachineClaim) -> bool:
    vm = await reader.object(Key(claim.ns, claim.vm))
    return vm is not None and not vm.removed and model.vm_of(vm).uid == claim.uid and has_machine(vm)


def has_machine(vm: Object) -> bool:
    """Tell whether a VM has a machine, or may have one: a failed adoption has none."""
    is_unmarked = vm.state == VmState.FAILED and bool(model.vm_of(vm).adopted) and not model.vm_seen(vm).native_id
    return vm.state != VmState.TERMINATED and not is_unmarked


def machine_of(vm: Object) -> tuple[str, str]:
    """Return the machine of a VM: its lane, and the provider's id, which is empty if it is not known."""
    spec = model.vm_of(vm)
    return spec.lane, model.vm_seen(vm).native_id or spec.adopted
