"""Service of the mci domain: all requests on MCIs and VMs; each is one atomic step on the engine."""

from collections.abc import Sequence

from msgspec.structs import replace

from stateward.domains.mci.control.orphan_machines import RemovalEvidence, observe_before_removal, possible_orphans
from stateward.domains.mci.control.status_updater import update_mci_status
from stateward.domains.mci.errors import VmsAlive
from stateward.domains.mci.guards.object_guards import DELETABLE_STATES
from stateward.domains.mci.guards.subgroups import WITH_MCI
from stateward.domains.mci.lifecycle import FORGET, HOLD, MCI, TERMINATE_FIRST, VM, MciState, VmState
from stateward.domains.mci.model import MciSpec, Scale, SubGroup, mci_of, vm_id, vm_of
from stateward.domains.mci.resource_service import ResourceService, retry_on_change
from stateward.domains.mci.shared_schemas import PossibleOrphan
from stateward.domains.mci.vm_placement import check_placement
from stateward.engine import Accepted, AlreadyExists, NotFound, Request
from stateward.engine.accept.groups import GroupVerdict
from stateward.engine.errors import NoneAllowed, Occupied, blocker_of
from stateward.engine.queries import list_all
from stateward.errors import BadInput, StatewardError
from stateward.lifecycle import FORCE, NO_FACTS
from stateward.schemas.caller import Caller
from stateward.store.filters import Selector
from stateward.store.records import Key, Object

GROUP_ACTIONS = ("suspend", "resume", "reboot", "terminate")
"""The actions of an MCI that run on all of its VMs at once."""


def gives_up_creation(request: Request, mci: Object) -> bool:
    """Return whether an action on an MCI without VMs ends its creation: a forced terminate does."""
    return request.action == "terminate" and FORCE in request.facts and mci.op is not None


class Service(ResourceService):
    """The mci domain, for its API, its commands and its demo."""

    # --- MCIs --------------------------------------------------------------------------------------------------------

    async def create(self, ns: str, mci: MciSpec, by: Caller) -> Accepted:
        """Create an MCI; it continues after its preparation unless it is to hold."""
        await self.namespace(ns)
        await check_placement(self.catalogue, ns, mci.groups, "subGroups[{}].")
        return await self.engine.create(
            ns, mci.name, MCI.kind, "create", spec=mci, labels=mci.label, actor=by.actor, who=by.who
        )

    async def control(self, ns: str, mci: str, action: str, by: Caller, *, force: bool = False) -> GroupVerdict:
        """Run an action on all VMs of an MCI whose states allow it; the others are skipped, with the reason.

        With force, an MCI without VMs is terminated too: its creation is given up.
        """
        if action not in GROUP_ACTIONS:
            raise BadInput("action", action, f"one of {', '.join(GROUP_ACTIONS)}")
        record = await self.mci(ns, mci)
        facts = {FORCE} if force else NO_FACTS
        whole = self.engine.request(ns, record.id, action, actor=by.actor, who=by.who, facts=facts)
        each = self.engine.request(ns, "", action, actor=by.actor, who=by.who, facts=facts)
        try:
            return await self.engine.group(whole, Selector(ns, VM.kind, mci), each)
        except NoneAllowed as error:
            if not error.skipped and gives_up_creation(whole, record):
                return GroupVerdict(await self.engine.submit(whole), [], {})
            refusal = await self.engine.explain_none_allowed(whole, error)
            raise (await self._blocked_by(ns, mci, refusal) if not force else refusal) from None

    async def _blocked_by(self, ns: str, mci: str, refusal: StatewardError) -> StatewardError:
        """Return the error that names the operation on an MCI, if only the VMs refuse the action."""
        op = (await self.mci(ns, mci)).op if isinstance(refusal, NoneAllowed) else None
        holder = None if op is None else await self.engine.store.reader.operation(Key(ns, op))
        if holder is None or not isinstance(refusal, NoneAllowed):
            return refusal
        return Occupied(refusal.action, blocker_of(holder))

    async def control_vm(self, ns: str, mci: str, vm: str, action: str, by: Caller, *, force: bool = False) -> Accepted:
        """Run an action on one VM."""
        if action not in GROUP_ACTIONS:
            raise BadInput("action", action, f"one of {', '.join(GROUP_ACTIONS)}")
        record = await self.vm(ns, mci, vm)
        facts = {FORCE} if force else NO_FACTS
        return await self._act(ns, record.id, action, by, facts=facts)

    async def reconcile_vm(self, ns: str, mci: str, vm: str, by: Caller) -> Accepted:
        """Move a Failed or Undefined VM to the provider's state."""
        record = await self.vm(ns, mci, vm)
        return await self._act(ns, record.id, "reconcile", by)

    async def continue_or_withdraw(self, ns: str, mci: str, action: str, by: Caller) -> Accepted:
        """Continue or withdraw an MCI that is on hold."""
        held = mci_of(await self.mci(ns, mci)).hold
        return await self._act(ns, mci, action, by, facts={HOLD} if held else NO_FACTS)

    async def refine(self, ns: str, mci: str, by: Caller) -> Accepted:
        """Terminate Failed and Undefined VMs at their providers and remove their records."""
        return await self._act_on_mci(ns, mci, "refine", by)

    async def reconcile(self, ns: str, mci: str, by: Caller) -> Accepted:
        """Move Failed and Undefined VMs to their providers' states."""
        return await self._act_on_mci(ns, mci, "reconcile", by)

    async def _act_on_mci(self, ns: str, mci: str, action: str, by: Caller) -> Accepted:
        return await self._act(ns, (await self.mci(ns, mci)).id, action, by)

    async def scale(
        self, ns: str, mci: str, group: str, by_count: int, by: Caller, version: int | None = None
    ) -> Accepted:
        """Scale a subgroup out, or in (a negative count); with a version, only the MCI of that version."""
        if by_count == 0:
            raise BadInput("count", by_count, "the number of VMs to add or to remove")
        if all(subgroup.name != group for subgroup in mci_of(await self.mci(ns, mci)).groups):
            raise NotFound(ns, f"{mci}/{group}")
        action, args = "scale out" if by_count > 0 else "scale in", Scale(group, abs(by_count))
        return await self._act(ns, mci, action, by, args=args, version=version)

    async def add_group(self, ns: str, mci: str, group: SubGroup, by: Caller) -> Accepted:
        """Add a subgroup."""
        await self.mci(ns, mci)
        await check_placement(self.catalogue, ns, [group], "")

        async def added() -> Accepted:
            record = await self.mci(ns, mci)
            spec = mci_of(record)
            if any(other.name == group.name for other in spec.groups):
                raise AlreadyExists(ns, f"{mci}/{group.name}", record.state)
            changed = replace(spec, groups=(*spec.groups, group))
            args = Scale(group.name, group.size)
            return await self._act(ns, mci, "scale out", by, spec=changed, args=args, version=record.version)

        return await retry_on_change(added)

    async def delete(self, ns: str, mci: str, option: str, by: Caller) -> tuple[Accepted, list[PossibleOrphan]]:
        """Delete an MCI; also returns the machines that may be left at their providers."""

        async def deleted() -> tuple[Accepted, list[PossibleOrphan]]:
            await update_mci_status(self.engine, ns, mci)  # its VMs may have changed a moment ago
            record = await self.mci(ns, mci)
            if option != "terminate" or record.state == MciState.TERMINATED or not await self.vms(ns, mci):
                return await self._delete_records(record, by, force=option == "force")
            return await self._act(ns, mci, "delete", by, facts={TERMINATE_FIRST}, version=record.version), []

        return await retry_on_change(deleted)

    async def _delete_records(self, mci: Object, by: Caller, *, force: bool) -> tuple[Accepted, list[PossibleOrphan]]:
        """Delete an MCI with all its VMs at once; the guard refuses if VMs were added, and the caller retries."""
        facts = {FORGET} if force else NO_FACTS
        whole = self.engine.request(mci.ns, mci.id, "delete", actor=by.actor, who=by.who, facts=facts)
        vms = await self.vms(mci.ns, mci.id)
        alive = {vm.id: vm.state for vm in vms if vm.state not in DELETABLE_STATES}
        evidence = RemovalEvidence() if alive and not force else await self._observe_before_removal(vms)
        of_each = evidence.facts | ({FORCE, WITH_MCI} if force else {WITH_MCI})
        each = self.engine.request(mci.ns, "", "remove", actor=by.actor, who=by.who, facts=of_each)
        try:
            verdict = await self.engine.group(whole, Selector(mci.ns, VM.kind, mci.id), each)
        except NoneAllowed as error:
            if error.skipped:
                alive = {vm.id: vm.state for vm in await self.vms(mci.ns, mci.id)}
                raise VmsAlive(mci.id, alive) from error
            return await self.engine.submit(whole), []
        assert verdict.whole is not None
        return verdict.whole, possible_orphans((begun.object for begun in verdict.begun), evidence)

    async def _observe_before_removal(self, vms: Sequence[Object]) -> RemovalEvidence:
        return await observe_before_removal(self.clients, self.engine.store.reader, vms)

    async def delete_vm(
        self, ns: str, mci: str, vm: str, by: Caller, *, force: bool = False
    ) -> tuple[Accepted, list[PossibleOrphan]]:
        """Remove the record of a VM that is Terminated or Failed; with force, in any state.

        Also returns its machine, if that may be left at the provider.
        """
        first = await self.vm(ns, mci, vm)
        facts = {FORCE} if force else NO_FACTS

        async def deleted() -> tuple[Accepted, list[PossibleOrphan]]:
            record = await self.vm(ns, mci, vm)
            if vm_of(record).uid != vm_of(first).uid:  # another VM has got its name meanwhile
                raise NotFound(ns, record.id)
            version = record.version
            request = self.engine.request(
                ns, record.id, "remove", actor=by.actor, who=by.who, facts=facts, version=version
            )
            (verdict,) = await self.engine.plan([request])
            if isinstance(verdict, StatewardError):
                raise verdict
            evidence = await self._observe_before_removal([record])
            accepted = await self.engine.submit(replace(request, facts=request.facts | evidence.facts))
            return accepted, possible_orphans([accepted.object], evidence)

        return await retry_on_change(deleted)

    async def terminate_and_delete_vm(self, ns: str, mci: str, vm: str, by: Caller) -> Accepted:
        """Terminate a VM at its provider and remove its record afterwards."""
        record = await self.vm(ns, mci, vm)
        action = "remove" if record.state == VmState.TERMINATED else "delete"
        return await self._act(ns, record.id, action, by)

    async def mci(self, ns: str, mci: str) -> Object:
        """Return an MCI, or raise."""
        record = await self.engine.record(ns, mci)
        if record.kind != MCI.kind:
            raise NotFound(ns, mci)
        return record

    async def mcis(self, ns: str) -> list[Object]:
        """Return the MCIs of a namespace."""
        return [mci async for mci in list_all(self.engine.store.reader, Selector(ns, MCI.kind))]

    async def vms(self, ns: str, mci: str) -> list[Object]:
        """Return the VMs of an MCI."""
        return [vm async for vm in list_all(self.engine.store.reader, Selector(ns, VM.kind, mci))]

    async def vm(self, ns: str, mci: str, vm: str) -> Object:
        """Return a VM, or raise."""
        record = await self.engine.record(ns, vm_id(mci, vm))
        if record.kind != VM.kind:
            raise NotFound(ns, vm_id(mci, vm))
        return record


__all__ = ["GROUP_ACTIONS", "Service"]
