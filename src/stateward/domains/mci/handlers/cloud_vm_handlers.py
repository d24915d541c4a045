"""What is done to a VM: ask the provider, then wait until its listing shows the end.

Every call carries the VM's uid, by which a create that was interrupted is found again, and the operation's id as the
token of the deed: the same operation never reboots twice, another one does. What a provider refuses fails the VM; what
it throttles, or does not answer, is tried again and fails nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from stateward.domains.mci.guards.subgroups import drop_subgroup_on_end, mci_lock_set
from stateward.domains.mci.lifecycle import RECONCILE, VM, VmState
from stateward.domains.mci.model import VmSpec, VmTarget, seen_of, to_builtins, vm_of, vm_seen, vm_target
from stateward.domains.mci.provider.evidence import (
    DRIFT_EVENTS,
    Evidence,
    Existence,
    conclude,
    conclusive,
    is_hopeless,
    is_reached,
)
from stateward.domains.mci.provider.evidence import EVENT_STATES as EXPECTED
from stateward.domains.mci.provider.provider_client import ProviderClient
from stateward.domains.outcomes import raise_for_outcome
from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallThrottled,
    MachineAction,
    MachineHandle,
    MachineSpec,
    MachineState,
    RefusalReason,
    TransientFailure,
)
from stateward.engine import Ending, Engine, Handler, Job, Kind, ObservedOutcome, Permanent, Route, Temporary, Unknown
from stateward.engine.kinds import Guard
from stateward.lifecycle import CONTROLLER, PROVIDER
from stateward.store.records import Object, to_json

ClientOf = Callable[[str], Awaitable[ProviderClient]]
"""Returns the client of a connection."""

GrantedClientOf = Callable[[str, str], Awaitable[ProviderClient]]
"""Returns the client of a connection for what a namespace makes there, if it may."""

APPEARS_WITHIN_S = 30.0
"""How many seconds a new machine may take to appear in listings: until then its absence proves nothing."""

RELAPSE_AFTER_S = 60.0
"""How many seconds a machine may be shown at rest in another state than it is to have, before the action has failed."""

REPORT_FIRST_S, REPORT_MAX_S = 10.0, 3_600.0
"""How many seconds pass before it is told that a provider does not answer: the first time, and at most."""

CONCLUDE_WITHIN_S = 15.0
"""How many seconds a evidence that ends an operation waits, at most, for the end of what the provider has taken."""

VM_LABELS = ("mci", "subgroup", "provider", "region", "connection")
"""The labels that a VM gets from its MCI."""

AT_REST = (MachineState.RUNNING, MachineState.SUSPENDED)

MACHINE_ACTIONS = {
    "suspend": MachineAction.SUSPEND,
    "resume": MachineAction.RESUME,
    "reboot": MachineAction.REBOOT,
    "terminate": MachineAction.TERMINATE,
    "delete": MachineAction.TERMINATE,
}


class VmLane(Struct, frozen=True):
    """Where a VM is: all that is read of it when it is sent to its lane, and an action may send 10,000."""

    provider: str
    region: str


class CloudVmHandlers:
    """The handlers of VMs."""

    def __init__(self, client_of: ClientOf, granted_client_of: GrantedClientOf) -> None:
        self._client_of, self._granted_client_of = client_of, granted_client_of
        self.engine: Engine | None = None

    def kind(self, guard: Guard) -> Kind:
        """Return the kind of VMs, with its handlers."""
        handlers = {"create": Handler(self._create, self._observe), "reconcile": Handler(self._reconcile)}
        handlers |= {action: Handler(self._act_on_machine, self._observe) for action in MACHINE_ACTIONS}
        return Kind(
            VM,
            handlers,
            _route,
            guard=guard,
            lock_set=mci_lock_set,
            on_end=drop_subgroup_on_end,
            reserved_labels=VM_LABELS,
            general=True,
        )

    async def _create(self, job: Job) -> Ending:
        vm = vm_of(job.claim.object)
        client = await self._granted_client_of(vm.connection, job.ns)
        raise_for_outcome(await client.create(_machine_spec(vm), job))
        return await self._wait(client, job, vm.uid)

    async def _act_on_machine(self, job: Job) -> Ending:
        vm = vm_target(job.claim.object)
        client = await self._client_of(vm.connection)
        outcome = await client.act(MACHINE_ACTIONS[job.action], _ref(job, vm), job)
        if isinstance(outcome, CallRefused) and outcome.why in (RefusalReason.NOT_FOUND, RefusalReason.CONFLICT):
            return await self._after_refusal(client, job, vm, outcome)
        raise_for_outcome(outcome)
        return await self._wait(client, job, vm.uid)

    async def _after_refusal(self, client: ProviderClient, job: Job, vm: VmTarget, refused: CallRefused) -> Ending:
        """Look whether what was refused is so already: then it is done, and else it has failed."""
        evidence = conclusive(job.action, await client.observe(vm.uid), await self._evidence_cutoff(client, job))
        if evidence.existence is Existence.UNKNOWN:
            raise Temporary(f"{refused.message}; and {evidence.problem}")
        if (
            evidence.existence is Existence.ABSENT
            and job.origin == VmState.CREATING
            and await self._may_be_unlisted(job)
        ):
            raise Temporary(f"{refused.message}; but it may be about to appear")
        if is_reached(job.action, evidence) and job.action != "reboot":
            return _completed(job, evidence)
        if (
            evidence.observation is not None
            and refused.why is RefusalReason.CONFLICT
            and not is_hopeless(job.action, evidence)
        ):
            raise Temporary(refused.message)  # it is on its way from one state to another
        raise Permanent(refused.message)

    async def _wait(self, client: ProviderClient, job: Job, uid: str) -> Ending:
        evidence = await self._wait_reporting(
            client, job, uid, final_evidence_check(job.action, await self._evidence_cutoff(client, job), client.clock)
        )
        if is_reached(job.action, evidence):
            return _completed(job, evidence)
        assert evidence.observation is not None
        raise Permanent(f"the provider shows {evidence.observation.native_state!r} after {job.action}")

    async def _wait_reporting(
        self, client: ProviderClient, job: Job, uid: str, is_last: Callable[[Evidence], bool]
    ) -> Evidence:
        """Wait for the last evidence; whoever waits is told, at growing distance, why the provider does not answer."""
        pause, trouble = REPORT_FIRST_S, ""

        def watch(evidence: Evidence) -> bool:
            nonlocal trouble
            trouble = evidence.problem if evidence.existence is Existence.UNKNOWN else ""
            return is_last(evidence)

        while True:
            try:
                async with asyncio.timeout(pause) as limit:
                    return await client.wait_for(uid, watch)
            except TimeoutError:
                if not limit.expired():
                    raise
            if trouble:
                await job.report_trouble(trouble)
            pause = min(2 * pause, REPORT_MAX_S)

    async def _observe(self, job: Job) -> ObservedOutcome | Ending:
        vm = vm_target(job.claim.object)
        client = await self._client_of(vm.connection)
        if job.is_ending:
            return await self._conclude(client, job, vm)
        evidence = conclusive(job.action, await client.observe(vm.uid), await self._evidence_cutoff(client, job))
        if evidence.existence is Existence.UNKNOWN:
            raise Unknown(evidence.problem)
        if evidence.existence is Existence.ABSENT and await self._may_be_unlisted(job):
            return ObservedOutcome.REPEATABLE  # it may not be shown yet: that proves no termination
        if is_reached(job.action, evidence) and job.action != "reboot":
            return _completed(job, evidence)
        return ObservedOutcome.REPEATABLE  # a deed is known by its token: to ask again does it no second time

    async def _conclude(self, client: ProviderClient, job: Job, vm: VmTarget) -> ObservedOutcome | Ending:
        """Say how an operation ends that ends now: what the provider has taken is waited for, within bounds."""
        if job.is_untried or (job.attempt <= 1 and not job.claim.work.observe and _is_refused(job)):
            return ObservedOutcome.NOT_DONE
        if job.is_calling:
            return ObservedOutcome.UNKNOWN
        taken = any(isinstance(one, CallAccepted | AlreadyDone) for one in job.answers)
        since, shows_tokens = client.clock() + client.driver.caps.listing_lag_s, client.driver.caps.lists_reboot_tokens

        def read(evidence: Evidence) -> ObservedOutcome:
            return conclude(job.action, job.key.id, evidence, since, is_accepted=taken, shows_tokens=shows_tokens)

        try:
            async with asyncio.timeout(CONCLUDE_WITHIN_S):
                if not job.sent:
                    await self._resume_reboot(client, job, vm)
                evidence = await client.wait_for(vm.uid, lambda evidence: read(evidence) is not ObservedOutcome.UNKNOWN)
        except TimeoutError:
            return ObservedOutcome.UNKNOWN
        if evidence.existence is Existence.ABSENT and await self._may_be_unlisted(job):
            return ObservedOutcome.UNKNOWN  # a machine that another worker has asked for may be about to appear
        return _completed(job, evidence) if read(evidence) is ObservedOutcome.DONE else read(evidence)

    async def _resume_reboot(self, client: ProviderClient, job: Job, vm: VmTarget) -> None:
        """Bring a reboot to its end whose worker has vanished in the middle: the machine would stay down."""
        shown = (await client.observe(vm.uid)).observation if job.action == "reboot" else None
        if shown is not None and job.key.id in shown.reboot_tokens and shown.state is not MachineState.RUNNING:
            await client.act(MachineAction.REBOOT, _ref(job, vm), job)

    async def _evidence_cutoff(self, client: ProviderClient, job: Job) -> float:
        """Return from when on a provider must be asked, to tell of an action and not of what was before it."""
        lag = client.driver.caps.listing_lag_s
        if not lag or job.action == "create":
            return 0.0
        assert self.engine is not None
        before = (
            _work_started_at(job) if MACHINE_ACTIONS[job.action] is MachineAction.TERMINATE else job.claim.object.since
        )
        age = await self.engine.store.reader.time() - before
        return client.clock() - age + lag

    async def _may_be_unlisted(self, job: Job) -> bool:
        """Tell whether a VM may be there, and not shown yet."""
        assert self.engine is not None
        return await self.engine.store.reader.time() < job.claim.object.created + APPEARS_WITHIN_S

    async def _reconcile(self, job: Job) -> str:
        """Take over what the provider shows, on request: hidden work, and then one step by the provider."""
        found = job.claim.object
        evidence = await (await self._client_of(vm_of(found).connection)).observe(vm_of(found).uid)
        if evidence.existence is Existence.UNKNOWN:
            raise Unknown(evidence.problem)
        assert self.engine is not None
        if evidence.observation is None:
            return "absent"  # no proof that it was terminated: terminate it with force, and it is one
        event = DRIFT_EVENTS.get(evidence.observation.state)
        if event is None:
            raise Temporary("it is on its way from one state to another")
        if EXPECTED.get(event) != found.state:
            await self.engine.act(
                found.ns,
                found.id,
                event,
                actor=PROVIDER,
                facts={RECONCILE},
                seen=to_builtins(seen_of(evidence.observation)),
                key=f"{job.key.id} reconciled",
            )
        return event


def final_evidence_check(action: str, since: float, clock: Callable[[], float]) -> Callable[[Evidence], bool]:
    """Return what tells whether a evidence is the last one: it shows the end, the hopeless, or for long something else."""
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


def _work_started_at(job: Job) -> float:
    """Return when work began: whoever was at the VM before, and may have made its machine, had stopped by then."""
    deadline = job.claim.work.deadline
    return job.claim.object.since if deadline is None else deadline - job.claim.operation.within


def _ref(job: Job, vm: VmTarget) -> MachineHandle:
    return MachineHandle(vm.uid, vm_seen(job.claim.object).native_id or None, job.key.id)


def _is_refused(job: Job) -> bool:
    """Tell whether every call of this attempt was answered, and none was taken."""
    return not job.is_calling and all(
        isinstance(one, CallRefused | CallThrottled | TransientFailure) for one in job.answers
    )


def _completed(job: Job, evidence: Evidence) -> Ending:
    seen = None if evidence.observation is None else to_json(seen_of(evidence.observation))
    return Ending("deleted", CONTROLLER, seen=seen) if job.action == "delete" else Ending(seen=seen)


def _machine_spec(vm: VmSpec) -> MachineSpec:
    return MachineSpec(
        key=vm.uid,
        name=f"{vm.mci}-{vm.name}",
        spec=vm.csp_spec,
        image=vm.csp_image,
        resources=vm.parts,
        disk_gib=vm.disk_gib,
        user=vm.user,
        tags={"mci": vm.mci, "subgroup": vm.group},
    )


def _route(found: Object, _action: str) -> Route:
    place = msgspec.json.decode(found.spec, type=VmLane)
    return Route(place.provider, f"{place.provider}/{place.region}")
