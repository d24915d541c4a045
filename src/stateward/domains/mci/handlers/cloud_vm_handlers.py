"""Handlers of VMs: call the provider, then wait until a listing shows the result.

Each call carries the VM's uid, which finds an interrupted create again, and the operation's id as the token of the
action: the same operation never reboots twice. Some providers do not recognize the token and would repeat a reboot, so
the operation stores that the provider has accepted it, and only waits from then on. A refusal of the provider fails the
VM. A throttled or unanswered call is retried and fails nothing.
"""

import asyncio
from collections.abc import Callable
from math import inf

from msgspec import Struct

from stateward import drivers
from stateward.domains.mci.guards.subgroups import drop_subgroup_on_end, mci_lock_set
from stateward.domains.mci.handlers.adoption_handlers import AdoptionHandlers
from stateward.domains.mci.lifecycle import RECONCILE, VM, VmState
from stateward.domains.mci.model import VmSpec, VmTarget, seen_of, spec_reader, vm_of, vm_seen, vm_target
from stateward.domains.mci.provider.evidence import (
    DRIFT_EVENTS,
    Evidence,
    Existence,
    conclude,
    conclusive,
    if_recent,
    is_hopeless,
    is_reached,
    may_appear,
)
from stateward.domains.mci.provider.evidence import EVENT_STATES as EXPECTED
from stateward.domains.mci.provider.provider_client import ProviderClient
from stateward.domains.mci.provider.vm_waiting import ClientOf, GrantedClientOf, wait_for_evidence, watch_vm_call
from stateward.domains.mci.remote.host_key_pins import BASTION_LABEL, HOST_KEY_LABEL
from stateward.engine import Ending, Engine, Handler, Job, Kind, ObservedOutcome, Permanent, Route, Temporary, Unknown
from stateward.engine.kinds import Guard, Rules
from stateward.lifecycle import CONTROLLER, PROVIDER
from stateward.plugin.outcomes import raise_for_outcome
from stateward.store.records import Object, to_json

RELAPSE_AFTER_S = 60.0
"""How long a machine may be shown at rest in a wrong state before the action has failed."""

CONCLUDE_WITHIN_S = 15.0
"""How long the last observation of an ending operation waits for an action that the provider has accepted."""

VM_LABELS = ("mci", "subgroup", "provider", "region", "connection", HOST_KEY_LABEL, BASTION_LABEL)
"""The labels that a VM gets from its MCI, and those that tell how it is reached over SSH."""

ACCEPTED = "accepted"
"""The step of a reboot that the provider has accepted and would repeat."""

NEVER_SHOWN = (VmState.CREATING, VmState.UNDEFINED)
"""The states of VMs whose machines may exist although no listing has shown them."""

AT_REST = (drivers.MachineState.RUNNING, drivers.MachineState.SUSPENDED)

MACHINE_ACTIONS = {
    "suspend": drivers.MachineAction.SUSPEND,
    "resume": drivers.MachineAction.RESUME,
    "reboot": drivers.MachineAction.REBOOT,
    "terminate": drivers.MachineAction.TERMINATE,
    "delete": drivers.MachineAction.TERMINATE,
}


class VmLane(Struct, frozen=True):
    """The fields of a VM spec that choose its lane; small, because one action may route 10,000 VMs."""

    provider: str
    region: str


vm_lane = spec_reader(VmLane)


class CloudVmHandlers:
    """The handlers of VMs."""

    engine: Engine

    def __init__(self, client_of: ClientOf, granted_client_of: GrantedClientOf, adoptions: AdoptionHandlers) -> None:
        self._client_of, self._granted_client_of, self.adoptions = client_of, granted_client_of, adoptions

    def kind(self, guard: Guard) -> Kind:
        """Return the kind of VMs with its handlers."""
        handlers = {"create": Handler(self._create, self._observe), "reconcile": Handler(self._reconcile)}
        handlers["adopt"] = Handler(self.adoptions.adopt, self.adoptions.observe)
        handlers |= {action: Handler(self._act_on_machine, self._observe) for action in MACHINE_ACTIONS}
        return Kind(
            VM,
            handlers,
            _route,
            guard=guard,
            lock_set=mci_lock_set,
            on_end=drop_subgroup_on_end,
            rules=Rules(reserved_labels=VM_LABELS),
        )

    async def _create(self, job: Job) -> Ending:
        vm = vm_of(job.claim.object)
        client = await self._granted_client_of(vm.connection, job.claim.work.lane, job.ns)
        called = client.clock()
        raise_for_outcome(await client.create(_machine_spec(vm), watch_vm_call(job, "create", vm.uid)))
        return await self._wait(client, job, vm.uid, called)

    async def _act_on_machine(self, job: Job) -> Ending:
        vm = vm_target(job.claim.object)
        client = await self._client_of(vm.connection, job.claim.work.lane)
        called = client.clock()
        if not job.result_of(ACCEPTED):
            outcome = await self._act(client, MACHINE_ACTIONS[job.action], job, vm)
            if isinstance(outcome, drivers.CallRefused) and outcome.why in (
                drivers.RefusalReason.NOT_FOUND,
                drivers.RefusalReason.CONFLICT,
            ):
                # the action is done if its goal is reached, otherwise it has failed
                evidence = conclusive(job.action, await client.observe(vm.uid), _begun_at(client, job))
                if evidence.existence is Existence.UNKNOWN:
                    raise Temporary(f"{outcome.message}; and {evidence.problem}")
                if may_appear(evidence, _created_before(client, job)):
                    raise Temporary(f"{outcome.message}; but it may be about to appear")
                if is_reached(job.action, evidence) and job.action != "reboot":
                    return _completed(job, evidence)
                if (
                    evidence.observation is not None
                    and outcome.why is drivers.RefusalReason.CONFLICT
                    and not is_hopeless(job.action, evidence)
                ):
                    raise Temporary(outcome.message)  # the machine is in a transitional state
                raise Permanent(outcome.message)
            raise_for_outcome(outcome)
            if job.action == "reboot" and not client.driver.caps.lists_reboot_tokens:
                await job.once(ACCEPTED, _is_accepted)
        return await self._wait(client, job, vm.uid, called)

    async def _act(
        self, client: ProviderClient, action: drivers.MachineAction, job: Job, vm: VmTarget
    ) -> drivers.Outcome:
        return await client.act(action, _ref(job, vm), watch_vm_call(job, action, vm.uid))

    async def _wait(self, client: ProviderClient, job: Job, uid: str, called: float) -> Ending:
        """Wait for the result of a call that was sent at `called`, by the client's clock."""
        is_last = final_evidence_check(job.action, called, client.clock)
        with job.record_call("observe", at=job.claim.work.lane, target=uid):
            evidence = await wait_for_evidence(client, job, uid, is_last)
        if is_reached(job.action, evidence):
            return _completed(job, evidence)
        assert evidence.observation is not None
        raise Permanent(f"the provider shows {evidence.observation.native_state!r} after {job.action}")

    async def _observe(self, job: Job) -> ObservedOutcome | Ending:
        vm = vm_target(job.claim.object)
        client = await self._client_of(vm.connection, job.claim.work.lane)
        if job.is_ending:
            return await self._conclude(client, job, vm)
        evidence = conclusive(job.action, await client.observe(vm.uid), _begun_at(client, job))
        if evidence.existence is Existence.UNKNOWN:
            raise Unknown(evidence.problem)
        if may_appear(evidence, _created_before(client, job)):
            return ObservedOutcome.REPEATABLE  # the machine may not be listed yet, so this is no proof of a termination
        if is_reached(job.action, evidence) and job.action != "reboot":
            return _completed(job, evidence)
        return ObservedOutcome.REPEATABLE  # its token, or a stored step, makes the repetition harmless

    async def _conclude(self, client: ProviderClient, job: Job, vm: VmTarget) -> ObservedOutcome | Ending:
        """Return the outcome of an operation that ends now; wait for an accepted action, up to a limit."""
        if job.is_untried or (job.attempt <= 1 and not job.claim.work.observe and _is_refused(job)):
            return ObservedOutcome.NOT_DONE
        if job.is_calling:
            return ObservedOutcome.UNKNOWN
        taken = bool(job.result_of(ACCEPTED)) or any(
            isinstance(answer, drivers.CallAccepted | drivers.AlreadyDone) for answer in job.answers
        )
        since, shows_tokens = client.clock(), client.driver.caps.lists_reboot_tokens

        def read(evidence: Evidence) -> ObservedOutcome:
            return conclude(job.action, job.key.id, evidence, since, is_accepted=taken, shows_tokens=shows_tokens)

        try:
            async with asyncio.timeout(CONCLUDE_WITHIN_S):
                if not job.sent:
                    await self._resume_reboot(client, job, vm)
                evidence = await client.wait_for(vm.uid, lambda evidence: read(evidence) is not ObservedOutcome.UNKNOWN)
        except TimeoutError:
            return ObservedOutcome.UNKNOWN
        if may_appear(evidence, _created_before(client, job)):
            return ObservedOutcome.UNKNOWN
        return _completed(job, evidence) if read(evidence) is ObservedOutcome.DONE else read(evidence)

    async def _resume_reboot(self, client: ProviderClient, job: Job, vm: VmTarget) -> None:
        """Complete a reboot whose worker died half-way: the machine would stay down."""
        shown = (await client.observe(vm.uid)).observation if job.action == "reboot" else None
        if shown is not None and job.key.id in shown.reboot_tokens and shown.state is not drivers.MachineState.RUNNING:
            await self._act(client, drivers.MachineAction.REBOOT, job, vm)

    async def _reconcile(self, job: Job) -> str:
        """Move a VM to the provider's state, on request: a hidden operation, then one event by the provider."""
        vm = job.claim.object
        client = await self._client_of(vm_of(vm).connection, job.claim.work.lane)
        came_to_rest = client.clock() - (job.now - vm.since)
        evidence = if_recent(await client.observe(vm_of(vm).uid), came_to_rest)
        if evidence.existence is Existence.UNKNOWN:
            raise Unknown(evidence.problem)
        if evidence.observation is None:
            return "absent"  # absence is no proof of termination; terminate with force gives it
        event = DRIFT_EVENTS.get(evidence.observation.state)
        if event is None:
            raise Temporary("it is on its way from one state to another")
        if EXPECTED.get(event) != vm.state:
            seen, key = seen_of(evidence.observation), f"{job.key.id} reconciled"
            await self.engine.act(*vm.key, event, actor=PROVIDER, facts={RECONCILE}, seen=seen, key=key)
        return event


def final_evidence_check(action: str, since: float, clock: Callable[[], float]) -> Callable[[Evidence], bool]:
    """Return a check for final evidence: the goal, a hopeless state, or a wrong state at rest for too long."""
    at_rest: list[float] = []

    def is_last(seen: Evidence) -> bool:
        evidence = conclusive(action, seen, since)
        if is_reached(action, evidence) or is_hopeless(action, evidence):
            return True
        if evidence.observation is None or evidence.observation.state not in AT_REST:
            at_rest.clear()
            return False
        at_rest.append(clock())
        return at_rest[-1] - at_rest[0] >= RELAPSE_AFTER_S

    return is_last


async def _is_accepted() -> bool:
    return True


def _begun_at(client: ProviderClient, job: Job) -> float:
    """Return when the operation began, by the client's clock; an operation that it has pre-empted had stopped by then.

    An observation that is not older shows what the operation itself has done, or what it need not do.
    """
    deadline = job.claim.work.deadline
    begun = job.claim.object.since if deadline is None else deadline - job.claim.operation.within
    return client.clock() - (job.now - begun)


def _created_before(client: ProviderClient, job: Job) -> float:
    """Return the latest time, by the client's clock, of a call that may have created the VM's machine.

    A create that ends now may have called just before. The create that another action has pre-empted, or that left
    the VM Undefined, called before this action began. A machine that was shown before needs no such time.
    """
    if job.action == "create":
        return client.clock()
    if job.origin in NEVER_SHOWN and not vm_seen(job.claim.object).native_id:
        return _begun_at(client, job)
    return -inf


def _ref(job: Job, vm: VmTarget) -> drivers.MachineHandle:
    return drivers.MachineHandle(vm.uid, vm_seen(job.claim.object).native_id or None, job.key.id)


def _is_refused(job: Job) -> bool:
    """Tell whether each call of this attempt was answered and none was accepted."""
    return not job.is_calling and all(
        isinstance(answer, drivers.CallRefused | drivers.CallThrottled | drivers.TransientFailure)
        for answer in job.answers
    )


def _completed(job: Job, evidence: Evidence) -> Ending:
    seen = None if evidence.observation is None else to_json(seen_of(evidence.observation))
    return Ending("deleted", CONTROLLER, seen=seen) if job.action == "delete" else Ending(seen=seen)


def _machine_spec(vm: VmSpec) -> drivers.MachineSpec:
    return drivers.MachineSpec(
        key=vm.uid,
        name=f"{vm.mci}-{vm.name}",
        spec=vm.csp_spec,
        image=vm.csp_image,
        resources=vm.parts,
        disk_gib=vm.disk_gib,
        user=vm.user,
        tags={"mci": vm.mci, "subgroup": vm.group},
        authorized_keys=(vm.access_key,) if vm.access_key else (),
    )


def _route(vm: Object, _action: str) -> Route:
    place = vm_lane(vm)
    return Route(place.provider, f"{place.provider}/{place.region}")
