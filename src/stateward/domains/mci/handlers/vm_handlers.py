"""What is done to a VM: ask the provider, then wait until its listing shows the end.

Every call carries the VM's uid, by which a create that was interrupted is found again, and the operation's id as the
token of the deed: the same operation never reboots twice, another one does. What a provider refuses fails the VM; what
it throttles, or does not answer, is tried again and fails nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from stateward.domains.mci.guards.subgroups import after_delete, mci_beside
from stateward.domains.mci.lifecycle import RECONCILE, VM, VmState
from stateward.domains.mci.model import Errand, VmSpec, errand_of, plain, seen_of, text, vm_of, vm_seen
from stateward.domains.mci.provider.evidence import EVENTS, Look, Sight, conclude, hopeless, proven, reached
from stateward.domains.mci.provider.evidence import SHOWN as EXPECTED
from stateward.domains.mci.provider.provider_client import Cloud
from stateward.domains.outcomes import raise_for_outcome
from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallThrottled,
    MachineAction,
    MachineRef,
    MachineSpec,
    MachineState,
    RefusalReason,
    TransientFailure,
)
from stateward.engine import Ending, Engine, Handler, Job, Kind, ObservedOutcome, Permanent, Route, Temporary, Unknown
from stateward.engine.kinds import Guard
from stateward.lifecycle import CONTROLLER, PROVIDER
from stateward.store.records import Object

CloudOf = Callable[[str], Awaitable[Cloud]]
"""Returns the cloud of a connection."""

GrantedCloudOf = Callable[[str, str], Awaitable[Cloud]]
"""Returns the cloud of a connection for what a namespace makes there, if it may."""

YOUNG = 30.0
"""How many seconds a new machine may take to appear in listings: until then its absence proves nothing."""

RELAPSED = 60.0
"""How many seconds a machine may be shown at rest in another state than it is to have, before the action has failed."""

TOLD_AFTER, LONGEST_PAUSE = 10.0, 3_600.0
"""How many seconds pass before it is told that a provider does not answer: the first time, and at most."""

SETTLES = 15.0
"""How many seconds a look that ends an operation waits, at most, for the end of what the provider has taken."""

FOUND_BY = ("mci", "subgroup", "provider", "region", "connection")
"""The labels that a VM gets from its MCI."""

AT_REST = (MachineState.RUNNING, MachineState.SUSPENDED)

DEEDS = {
    "suspend": MachineAction.SUSPEND,
    "resume": MachineAction.RESUME,
    "reboot": MachineAction.REBOOT,
    "terminate": MachineAction.TERMINATE,
    "delete": MachineAction.TERMINATE,
}


class Place(Struct, frozen=True):
    """Where a VM is: all that is read of it when it is sent to its lane, and an action may send 10,000."""

    provider: str
    region: str


class Vms:
    """The handlers of VMs."""

    def __init__(self, cloud_of: CloudOf, granted_cloud_of: GrantedCloudOf) -> None:
        self._cloud_of, self._granted_cloud_of = cloud_of, granted_cloud_of
        self.engine: Engine | None = None

    def kind(self, guard: Guard) -> Kind:
        """Return the kind of VMs, with its handlers."""
        handlers = {"create": Handler(self._create, self._observe), "reconcile": Handler(self._reconcile)}
        handlers |= {action: Handler(self._act, self._observe) for action in DEEDS}
        return Kind(
            VM,
            handlers,
            _route,
            guard=guard,
            lock_set=mci_beside,
            on_end=after_delete,
            reserved_labels=FOUND_BY,
            general=True,
        )

    async def _create(self, job: Job) -> Ending:
        vm = vm_of(job.claim.object)
        cloud = await self._granted_cloud_of(vm.connection, job.ns)
        raise_for_outcome(await cloud.create(_want(vm), job))
        return await self._wait(cloud, job, vm.uid)

    async def _act(self, job: Job) -> Ending:
        vm = errand_of(job.claim.object)
        cloud = await self._cloud_of(vm.connection)
        outcome = await cloud.act(DEEDS[job.action], _ref(job, vm), job)
        if isinstance(outcome, CallRefused) and outcome.why in (RefusalReason.NOT_FOUND, RefusalReason.CONFLICT):
            return await self._despite(cloud, job, vm, outcome)
        raise_for_outcome(outcome)
        return await self._wait(cloud, job, vm.uid)

    async def _despite(self, cloud: Cloud, job: Job, vm: Errand, refused: CallRefused) -> Ending:
        """Look whether what was refused is so already: then it is done, and else it has failed."""
        look = proven(job.action, await cloud.look(vm.uid), await self._since(cloud, job))
        if look.sight is Sight.UNKNOWN:
            raise Temporary(f"{refused.message}; and {look.trouble}")
        if look.sight is Sight.ABSENT and job.origin == VmState.CREATING and await self._is_young(job):
            raise Temporary(f"{refused.message}; but it may be about to appear")
        if reached(job.action, look) and job.action != "reboot":
            return _done(job, look)
        if look.shown is not None and refused.why is RefusalReason.CONFLICT and not hopeless(job.action, look):
            raise Temporary(refused.message)  # it is on its way from one state to another
        raise Permanent(refused.message)

    async def _wait(self, cloud: Cloud, job: Job, uid: str) -> Ending:
        look = await self._patiently(cloud, job, uid, last_look(job.action, await self._since(cloud, job), cloud.clock))
        if reached(job.action, look):
            return _done(job, look)
        assert look.shown is not None
        raise Permanent(f"the provider shows {look.shown.native_state!r} after {job.action}")

    async def _patiently(self, cloud: Cloud, job: Job, uid: str, is_last: Callable[[Look], bool]) -> Look:
        """Wait for the last look; whoever waits is told, at growing distance, why the provider does not answer."""
        pause, trouble = TOLD_AFTER, ""

        def watch(look: Look) -> bool:
            nonlocal trouble
            trouble = look.trouble if look.sight is Sight.UNKNOWN else ""
            return is_last(look)

        while True:
            try:
                async with asyncio.timeout(pause) as limit:
                    return await cloud.until(uid, watch)
            except TimeoutError:
                if not limit.expired():
                    raise
            if trouble:
                await job.report_trouble(trouble)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _observe(self, job: Job) -> ObservedOutcome | Ending:
        vm = errand_of(job.claim.object)
        cloud = await self._cloud_of(vm.connection)
        if job.is_ending:
            return await self._conclude(cloud, job, vm)
        look = proven(job.action, await cloud.look(vm.uid), await self._since(cloud, job))
        if look.sight is Sight.UNKNOWN:
            raise Unknown(look.trouble)
        if look.sight is Sight.ABSENT and await self._is_young(job):
            return ObservedOutcome.REPEATABLE  # it may not be shown yet: that proves no termination
        if reached(job.action, look) and job.action != "reboot":
            return _done(job, look)
        return ObservedOutcome.REPEATABLE  # a deed is known by its token: to ask again does it no second time

    async def _conclude(self, cloud: Cloud, job: Job, vm: Errand) -> ObservedOutcome | Ending:
        """Say how an operation ends that ends now: what the provider has taken is waited for, within bounds."""
        if job.is_untried or (job.attempt <= 1 and not job.claim.work.observe and _denied(job)):
            return ObservedOutcome.NOT_DONE
        if job.is_calling:
            return ObservedOutcome.UNKNOWN
        taken = any(isinstance(one, CallAccepted | AlreadyDone) for one in job.answers)
        since, shows_tokens = cloud.clock() + cloud.driver.caps.listing_lag_s, cloud.driver.caps.lists_reboot_tokens

        def read(look: Look) -> ObservedOutcome:
            return conclude(job.action, job.key.id, look, since, taken=taken, shows_tokens=shows_tokens)

        try:
            async with asyncio.timeout(SETTLES):
                if not job.sent:
                    await self._resume_reboot(cloud, job, vm)
                look = await cloud.until(vm.uid, lambda look: read(look) is not ObservedOutcome.UNKNOWN)
        except TimeoutError:
            return ObservedOutcome.UNKNOWN
        if look.sight is Sight.ABSENT and await self._is_young(job):
            return ObservedOutcome.UNKNOWN  # a machine that another worker has asked for may be about to appear
        return _done(job, look) if read(look) is ObservedOutcome.DONE else read(look)

    async def _resume_reboot(self, cloud: Cloud, job: Job, vm: Errand) -> None:
        """Bring a reboot to its end whose worker has vanished in the middle: the machine would stay down."""
        shown = (await cloud.look(vm.uid)).shown if job.action == "reboot" else None
        if shown is not None and job.key.id in shown.reboot_tokens and shown.state is not MachineState.RUNNING:
            await cloud.act(MachineAction.REBOOT, _ref(job, vm), job)

    async def _since(self, cloud: Cloud, job: Job) -> float:
        """Return from when on a provider must be asked, to tell of an action and not of what was before it."""
        lag = cloud.driver.caps.listing_lag_s
        if not lag or job.action == "create":
            return 0.0
        assert self.engine is not None
        before = _begun(job) if DEEDS[job.action] is MachineAction.TERMINATE else job.claim.object.since
        age = await self.engine.store.reader.time() - before
        return cloud.clock() - age + lag

    async def _is_young(self, job: Job) -> bool:
        """Tell whether a VM may be there, and not shown yet."""
        assert self.engine is not None
        return await self.engine.store.reader.time() < job.claim.object.created + YOUNG

    async def _reconcile(self, job: Job) -> str:
        """Take over what the provider shows, on request: hidden work, and then one step by the provider."""
        found = job.claim.object
        look = await (await self._cloud_of(vm_of(found).connection)).look(vm_of(found).uid)
        if look.sight is Sight.UNKNOWN:
            raise Unknown(look.trouble)
        assert self.engine is not None
        if look.shown is None:
            return "absent"  # no proof that it was terminated: terminate it with force, and it is one
        event = EVENTS.get(look.shown.state)
        if event is None:
            raise Temporary("it is on its way from one state to another")
        if EXPECTED.get(event) != found.state:
            await self.engine.act(
                found.ns,
                found.id,
                event,
                actor=PROVIDER,
                facts={RECONCILE},
                seen=plain(seen_of(look.shown)),
                key=f"{job.key.id} reconciled",
            )
        return event


def last_look(action: str, since: float, clock: Callable[[], float]) -> Callable[[Look], bool]:
    """Return what tells whether a look is the last one: it shows the end, the hopeless, or for long something else."""
    at_rest: list[float] = []

    def is_last(seen: Look) -> bool:
        look = proven(action, seen, since)
        if reached(action, look) or hopeless(action, look):
            return True
        if look.shown is None or look.shown.state not in AT_REST:
            at_rest.clear()
            return False
        at_rest.append(clock())
        return at_rest[-1] - at_rest[0] >= RELAPSED

    return is_last


def _begun(job: Job) -> float:
    """Return when work began: whoever was at the VM before, and may have made its machine, had stopped by then."""
    deadline = job.claim.work.deadline
    return job.claim.object.since if deadline is None else deadline - job.claim.operation.within


def _ref(job: Job, vm: Errand) -> MachineRef:
    return MachineRef(vm.uid, vm_seen(job.claim.object).native_id or None, job.key.id)


def _denied(job: Job) -> bool:
    """Tell whether every call of this attempt was answered, and none was taken."""
    return not job.is_calling and all(
        isinstance(one, CallRefused | CallThrottled | TransientFailure) for one in job.answers
    )


def _done(job: Job, look: Look) -> Ending:
    seen = None if look.shown is None else text(seen_of(look.shown))
    return Ending("deleted", CONTROLLER, seen=seen) if job.action == "delete" else Ending(seen=seen)


def _want(vm: VmSpec) -> MachineSpec:
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
    place = msgspec.json.decode(found.spec, type=Place)
    return Route(place.provider, f"{place.provider}/{place.region}")
