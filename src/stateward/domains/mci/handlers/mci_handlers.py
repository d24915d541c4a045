"""Handlers of MCIs: composite operations whose steps are the operations of their VMs.

Each step is stored with the operation, so a crash at any point continues from there. The engine claims the MCI's work
again when the operations of its VMs have ended. The handler then rolls the VM states up.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from stateward.domains.mci import model, vm_placement
from stateward.domains.mci.control.status_rollup import rollup_event
from stateward.domains.mci.handlers.adopted_vms import AdoptedVms
from stateward.domains.mci.handlers.post_commands import PostCommandResults, run_post_commands
from stateward.domains.mci.handlers.prerequisites import Prerequisites, with_prerequisite_names
from stateward.domains.mci.lifecycle import HOLD, MCI, VM, MciState, VmState
from stateward.domains.mci.provider.catalogue import Catalogue
from stateward.domains.mci.remote.vm_shells import VmShells
from stateward.engine import Ending, Handler, Job, Kind, Request, Rules, Why
from stateward.engine.kinds import Guard
from stateward.engine.queries import list_all
from stateward.engine.requests import Creation
from stateward.engine.work_errors import Parked
from stateward.lifecycle import CANCELLED, CONTROLLER, FORCE, NO_FACTS
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, Status, to_json

BAD_STATES = (VmState.FAILED, VmState.UNDEFINED)
VM_ONLY_ACTIONS = ("suspend", "resume", "reboot", "terminate")
"""Actions that consist of the operations on VMs alone."""

FORCED = frozenset({FORCE})
MCI_STATES = frozenset(state.word for state in MciState)
"""The states in which an action finds an MCI that exists."""


class MciHandlers:
    """The handlers of MCIs."""

    def __init__(
        self,
        shells: VmShells,
        driver_of: vm_placement.DriverOf,
        catalogue: Catalogue,
        access_key_of: Callable[[str], str],
        adopted_vms: AdoptedVms,
    ) -> None:
        self._shells, self._driver_of, self._access_key_of = shells, driver_of, access_key_of
        self._catalogue = catalogue
        self._prerequisites = Prerequisites(catalogue)
        self._adopted_vms = adopted_vms

    def kind(self, guard: Guard) -> Kind:
        """Return the kind of MCIs with its handlers."""
        handlers: dict[str, Callable[[Job], Any]] = {
            "create": self._create,
            "scale out": self._scale_out,
            "scale in": self._scale_in,
            "adopt": self._adopt,
            "deregister": self._deregister,
            "refine": self._refine,
            "reconcile": self._reconcile,
            "withdraw": self._withdraw,
            "delete": self._delete,
        }
        handlers |= dict.fromkeys(VM_ONLY_ACTIONS, self._roll_up) | {"terminate": self._terminate}
        made = {action: Handler(run, cancelled=self._end_cancelled) for action, run in handlers.items()}
        removals = ("delete", "scale in", "refine", "deregister")
        return Kind(
            MCI,
            made,
            guard=guard,
            spec_actions=("scale out",),
            rules=Rules(removal_actions=removals, removes_below=("delete",)),
            why=Why(unhealthy_parts=_unhealthy_vms),
        )

    # --- creating ----------------------------------------------------------------------------------------------------

    async def _create(self, job: Job) -> Ending:
        mci = model.mci_of(job.claim.object)
        planned, troubles = await vm_placement.place_subgroups(self._catalogue, self._driver_of, job.ns, mci.groups)
        if job.state == MciState.PREPARING:
            refused = await job.once("refused", lambda: vm_placement.provider_refusals(self._driver_of, planned))
            trouble = "; ".join([*troubles, *refused]) or await self._prerequisites.prepare(job, mci, planned)
            if trouble:
                await self._prerequisites.undo(job, mci)
                return Ending("failed", CONTROLLER, error=trouble, seen=to_json(model.MciSeen((trouble,))))
            await job.phase("prepared", facts=frozenset({HOLD}) if mci.hold else NO_FACTS)
        if mci.hold and job.state != MciState.CREATING:
            raise Parked
        if not mci.hold:
            await job.phase("provision")
        trouble = await job.once("still there", lambda: self._prerequisites.prepare(job, mci, planned, " for VMs"))
        if trouble is not None:
            troubles, planned = [*troubles, trouble], []
        denied = await self._provision(
            job, mci, [(placed, list(range(1, placed.group.size + 1))) for placed in planned]
        )
        made = [
            model.vm_id(mci.name, f"{group.name}-{number + 1}") for group in mci.groups for number in range(group.size)
        ]
        return await self._apply_policy(job, mci, made, denied, troubles)

    async def _provision(
        self, job: Job, mci: model.MciSpec, wanted: Sequence[tuple[vm_placement.PlacedSubGroup, list[int]]]
    ) -> dict[str, str]:
        """Create VMs; returns the denied ones with the reasons."""
        requests: list[Request] = []
        known: dict[tuple[object, ...], dict[str, str]] = {}
        for placed, numbers in wanted:
            names = with_prerequisite_names(job.ns, mci, placed.group, placed.connection.name)
            stands_on = names.network, names.subnet, names.groups, names.key
            if stands_on not in known:  # most subgroups of a connection use the same resources
                known[stands_on] = await self._prerequisites.native_ids(job.ns, names)
            requests += [
                new_vm_request(
                    job,
                    "create",
                    vm_placement.make_vm_spec(
                        mci, placed, number, job.key.id, known[stands_on], names, self._access_key_of(job.ns)
                    ),
                )
                for number in numbers
            ]
        return await job.spawn("vms", requests)

    async def _apply_policy(
        self, job: Job, mci: model.MciSpec, made: Sequence[str], denied: dict[str, str], troubles: Sequence[str] = ()
    ) -> Ending:
        """Apply the policy to failed VMs of this operation, run the post-commands on the others, and roll up."""
        asked = await job.once("asked", lambda: _requested_sizes(mci))  # a policy may remove subgroups
        errors = await job.once("errors", lambda: self._errors(job, made, denied, troubles))
        if errors and mci.policy == "rollback":
            await self._terminate_and_remove(job, "made", made)
        elif errors and mci.policy == "refine":
            await self._refine(job, made)
        left: dict[str, str] = await job.once("left", lambda: self._states_of(job, made))
        if all(state in BAD_STATES for state in left.values()):
            return await self._end_without_vms(job, mci, left, model.MciSeen(tuple(errors), asked=asked))
        noted = await job.once("post-command", lambda: self._post_command(job, mci, made))
        ran, ending = msgspec.convert(noted, PostCommandResults), await self._roll_up(job)
        return replace(ending, seen=to_json(model.MciSeen(tuple(errors), ran.written, ran.failed, asked, ran.phases)))

    async def _end_without_vms(self, job: Job, mci: model.MciSpec, left: dict[str, str], seen: model.MciSeen) -> Ending:
        """End an operation without a working VM: an MCI that was scaled out returns to its former state."""
        undone = Ending("all failed" if job.action == "create" else "undone", CONTROLLER)
        ending = await self._roll_up(job) if left else undone
        why = "rolled back" if mci.policy == "rollback" else "no VM was created"
        return replace(ending, error=why, seen=to_json(seen))

    async def _errors(
        self, job: Job, made: Sequence[str], denied: dict[str, str], troubles: Sequence[str]
    ) -> list[str]:
        vms = {vm.id: vm for vm in await self._vms(job)}
        refused = [f"{id_.partition('.')[2]}: {why}" for id_, why in denied.items()]
        unplanned = list(troubles) if any(id_ not in vms and id_ not in denied for id_ in made) else []
        failed = [vms[id_] for id_ in made if id_ in vms and vms[id_].state in BAD_STATES]
        return [*unplanned, *refused, *(f"{model.vm_of(vm).name}: {vm.error or vm.state}" for vm in failed)]

    async def _states_of(self, job: Job, made: Sequence[str]) -> dict[str, str]:
        return {vm.id: vm.state for vm in await self._vms_among(job, made)}

    async def _post_command(self, job: Job, mci: model.MciSpec, made: Sequence[str]) -> Any:  # noqa: ANN401 - JSON
        running = [vm for vm in await self._vms_among(job, made) if vm.state == VmState.RUNNING]
        run = f"{job.key.id}-post"
        return msgspec.to_builtins(await run_post_commands(self._shells, job, run, mci, running))

    async def _withdraw(self, job: Job) -> Ending:
        await self._prerequisites.undo(job, model.mci_of(job.claim.object))
        return Ending("deleted", CONTROLLER)

    # --- scaling -----------------------------------------------------------------------------------------------------

    async def _scale_out(self, job: Job) -> Ending:
        mci, scale = model.mci_of(job.claim.object), msgspec.json.decode(job.claim.operation.args, type=model.Scale)
        group = next(subgroup for subgroup in mci.groups if subgroup.name == scale.group)
        planned, troubles = await vm_placement.place_subgroups(self._catalogue, self._driver_of, job.ns, [group])
        refused = await job.once("refused", lambda: vm_placement.provider_refusals(self._driver_of, planned))
        trouble = "; ".join([*troubles, *refused]) or await self._prerequisites.prepare(job, mci, planned)
        if trouble:
            return Ending("undone", CONTROLLER, error=trouble)
        numbers = await job.once("numbers", lambda: self._new_numbers(job, scale))
        denied = await self._provision(job, mci, [(placed, numbers) for placed in planned])
        made = [model.vm_id(mci.name, f"{scale.group}-{number}") for number in numbers]
        return await self._apply_policy(job, mci, made, denied)

    async def _new_numbers(self, job: Job, scale: model.Scale) -> list[int]:
        return vm_placement.free_numbers(
            [model.vm_of(vm).name for vm in await self._vms(job)], scale.group, scale.count
        )

    async def _scale_in(self, job: Job) -> Ending:
        scale = msgspec.json.decode(job.claim.operation.args, type=model.Scale)
        leaving = await job.once("leaving", lambda: self._leaving(job, scale))
        await self._terminate_and_remove(job, "leaving", leaving)
        return await self._roll_up(job)

    async def _leaving(self, job: Job, scale: model.Scale) -> list[str]:
        return choose_leaving(await self._vms(job), scale)

    # --- machines of others ------------------------------------------------------------------------------------------

    async def _adopt(self, job: Job) -> Ending:
        """Adopt machines; the records of machines that could not be adopted are removed again."""
        wanted = msgspec.json.decode(job.claim.operation.args, type=model.Adoption)
        noted = await job.once("specs", lambda: self._adopted_vms.vm_specs(job, wanted, lambda: self._vms(job)))
        specs = msgspec.convert(noted, list[model.VmSpec])
        denied = await job.spawn("vms", [new_vm_request(job, "adopt", spec) for spec in specs])
        made = [model.vm_id(spec.mci, spec.name) for spec in specs]
        errors = await job.once("errors", lambda: self._errors(job, made, denied, ()))
        states: dict[str, str] = await job.once("states", lambda: self._states_of(job, made))
        failed = [id_ for id_ in made if states.get(id_) == VmState.FAILED]
        await job.spawn("remove", [self._forced_request(job, id_, "remove") for id_ in failed])
        seen = to_json(model.MciSeen(tuple(errors))) if errors else None
        if len(failed) + len(denied) < len(specs):
            return replace(await self._roll_up(job), seen=seen)
        event = "all failed" if job.origin not in MCI_STATES else "undone"
        return Ending(event, CONTROLLER, error=f"no machine was adopted: {'; '.join(errors)}", seen=seen)

    async def _deregister(self, job: Job) -> list[str]:
        """Take our keys off machines, which stay as they are, and remove the records of their VMs."""
        wanted = msgspec.json.decode(job.claim.operation.args, type=model.Deregistration)
        ids = [model.vm_id(job.object, name) for name in wanted.vms]
        await job.once("released", lambda: self._adopted_vms.release(job, ids))
        await job.spawn("remove", [self._forced_request(job, id_, "remove") for id_ in ids])
        return ids

    # --- removing ----------------------------------------------------------------------------------------------------

    async def _refine(self, job: Job, among: Sequence[str] | None = None) -> list[str]:
        """Terminate and remove the bad VMs: all, or those among some."""
        ids: list[str] = await job.once("bad ones", lambda: self._ids_in(job, BAD_STATES))
        bad = [id_ for id_ in ids if among is None or id_ in among]
        await self._terminate_and_remove(job, "bad ones", bad)
        return bad

    async def _terminate(self, job: Job) -> Ending:
        """Roll up; a forced terminate of the whole MCI also terminates VMs that were created meanwhile."""
        alone: list[str] = await job.once("not asked", lambda: self._vms_without_operation(job))
        await job.spawn("terminate", [self._forced_request(job, id_, "terminate") for id_ in alone])
        return await self._roll_up(job)

    async def _vms_without_operation(self, job: Job) -> list[str]:
        """Return the VMs that live and have no operation of this one."""
        if FORCE not in msgspec.json.decode(job.claim.operation.facts):
            return []
        asked = {child.object for child in await self._catalogue.reader.children_of(job.key)}
        return [vm.id for vm in await self._vms(job) if vm.state != VmState.TERMINATED and vm.id not in asked]

    async def _delete(self, job: Job) -> Ending:
        everyone = await job.once("everyone", lambda: self._ids_in(job, None))
        await self._terminate_and_remove(job, "everyone", everyone)
        left = await self._vms(job)
        return Ending("deleted", CONTROLLER) if not left else await self._roll_up(job)

    async def _terminate_and_remove(self, job: Job, whom: str, ids: Sequence[str]) -> None:
        """Terminate VMs at the provider, and remove the records of those that are terminated."""
        alive = await job.once(f"alive of {whom}", lambda: self._ids_alive(job, ids))
        await job.spawn(f"terminate {whom}", [self._forced_request(job, id_, "terminate") for id_ in alive])
        gone = await job.once(f"gone of {whom}", lambda: self._ids_terminated(job, ids))
        await job.spawn(f"remove {whom}", [self._forced_request(job, id_, "remove") for id_ in gone])

    def _forced_request(self, job: Job, id_: str, action: str) -> Request:
        return Request(job.ns, id_, action, "", who=job.claim.operation.who, facts=FORCED)

    async def _ids_alive(self, job: Job, ids: Sequence[str]) -> list[str]:
        return [vm.id for vm in await self._vms_among(job, ids) if vm.state != VmState.TERMINATED]

    async def _ids_terminated(self, job: Job, ids: Sequence[str]) -> list[str]:
        return [vm.id for vm in await self._vms_among(job, ids) if vm.state == VmState.TERMINATED]

    # --- roll-up -----------------------------------------------------------------------------------------------------

    async def _reconcile(self, job: Job) -> list[str]:
        bad: list[str] = await job.once("bad ones", lambda: self._ids_in(job, BAD_STATES))
        await job.spawn("reconcile", [Request(job.ns, id_, "reconcile", "") for id_ in bad])
        return bad

    async def _roll_up(self, job: Job) -> Ending:
        counts = await self._catalogue.reader.count_states(Selector(job.ns, VM.kind, job.object))
        event = rollup_event([state for (_, state), number in counts.items() for _ in range(number)])
        failed = event in ("all failed", "none can say")
        return Ending(event, CONTROLLER, error="no working VM is left" if failed else None)

    async def _end_cancelled(self, job: Job) -> Ending:
        """Return the ending of a cancelled operation, after all operations of its VMs have ended."""
        record = await self._catalogue.reader.object(Key(job.ns, job.object))
        if record is not None and record.state in (MciState.PREPARING, MciState.PREPARED):
            return Ending(CANCELLED, error="cancelled")
        children = await self._catalogue.reader.children_of(job.key)
        statuses = [child.status for child in children if child.kind == VM.kind]
        done, undone = statuses.count(Status.SUCCEEDED), statuses.count(Status.CANCELLED)
        ending = await self._roll_up(job)
        if undone == len(statuses):
            return replace(ending, error="cancelled", status=Status.CANCELLED)
        if done == len(statuses) and job.action in VM_ONLY_ACTIONS:
            return ending
        failed = len(statuses) - done - undone
        why = f"cancelled: {done} of {len(statuses)} operations on VMs were done, {undone} were not, {failed} failed"
        if done == len(statuses):
            why = f"cancelled: all {done} operations on VMs were done, and what follows them was not"
        return replace(ending, error=why, status=Status.FAILED)

    async def _ids_in(self, job: Job, states: tuple[VmState, ...] | None) -> list[str]:
        return [vm.id for vm in await self._vms(job) if states is None or vm.state in states]

    async def _vms_among(self, job: Job, ids: Sequence[str]) -> list[Object]:
        wanted = frozenset(ids)
        return [vm for vm in await self._vms(job) if vm.id in wanted]

    async def _vms(self, job: Job) -> list[Object]:
        return [vm async for vm in list_all(self._catalogue.reader, Selector(job.ns, VM.kind, job.object))]


async def _requested_sizes(mci: model.MciSpec) -> dict[str, int]:
    return {group.name: group.size for group in mci.groups}


def new_vm_request(job: Job, action: str, vm: model.VmSpec) -> Request:
    """Return the request of an MCI's operation for a new VM."""
    labels = {"mci": vm.mci, "subgroup": vm.group, "provider": vm.provider, "region": vm.region}
    labels |= {"connection": vm.connection}
    creation = Creation(VM.kind, job.object, to_json(labels))
    who = job.claim.operation.who
    return Request(job.ns, model.vm_id(vm.mci, vm.name), action, "", who=who, spec=to_json(vm), creates=creation)


def _unhealthy_vms(mci: Object) -> list[Selector]:
    """Select the VMs that have made an MCI failed, undefined or partial."""
    is_unhealthy = mci.state in (MciState.FAILED, MciState.UNDEFINED, MciState.PARTIAL)
    return [Selector(mci.ns, VM.kind, mci.id, tuple(state.word for state in BAD_STATES))] if is_unhealthy else []


def choose_leaving(vms: Sequence[Object], scale: model.Scale) -> list[str]:
    """Choose VMs to remove: failed, undefined and terminated ones first, then the newest."""
    group = [vm for vm in vms if model.vm_of(vm).group == scale.group]
    group.sort(key=lambda vm: (vm.state not in (*BAD_STATES, VmState.TERMINATED), -_vm_number(vm)))
    return [vm.id for vm in group[: scale.count]]


def _vm_number(vm: Object) -> int:
    tail = vm.id.rpartition("-")[2]
    return int(tail) if tail.isdigit() else 0
