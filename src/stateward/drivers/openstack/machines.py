"""Servers: their creation, once for each key, and actions on them, one call for each.

Nova has no client tokens, and would make a second server for a repeated create. So each create begins with a search for
its keys: in a listing of all servers, and among those that were deleted not long ago. Three things could still make a
second server:

- another call of this process for the same key: calls for one key wait for each other;
- a create without an answer, which Nova may still be working on and show later: for a settle time no other create of
  its key is sent, unless a listing shows the server;
- another process that was taken for dead: after a create, a listing of what is new since the search shows its server.
  The older server stays, and the driver deletes the one that it has just made.

Nova refuses an action in a wrong state with 409. The text names the state, but not whether the action is done already.
So after a 409 the state of the server decides: done, another way to do it, or a conflict.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from time import monotonic
from weakref import WeakValueDictionary

from msgspec import Struct

from stateward.drivers import port
from stateward.drivers.cloud import machines
from stateward.drivers.cloud.errors import CloudCallFailed, found_or_none, outcome_of
from stateward.drivers.openstack.client import ApiCall, OpenStackClient
from stateward.drivers.openstack.images import OpenStackImages
from stateward.drivers.openstack.listing import ServerLister
from stateward.drivers.openstack.networks import OpenStackResources
from stateward.drivers.openstack.settings import OpenStackSettings, SuspendWay
from stateward.drivers.openstack.states import KEY_TEXT, MAX_TEXT, ServerPlan, create_body, states_of

REMEMBERED = timedelta(days=1)
"""How far back the search for deleted servers goes; a create is not repeated after that."""


class NovaAction(Struct, frozen=True):
    """An action of Nova's: its name for meters, what is sent, and the task that it is carried out as."""

    name: str
    body: Mapping[str, object]
    task: str


SUSPEND = {
    SuspendWay.SUSPEND: NovaAction("SuspendServer", {"suspend": None},   "suspending"),
    SuspendWay.PAUSE:   NovaAction("PauseServer",   {"pause": None},     "pausing"),
    SuspendWay.STOP:    NovaAction("StopServer",    {"os-stop": None},   "powering-off"),
}  # fmt: skip
RESUME = {
    "suspended": NovaAction("ResumeServer",  {"resume": None},   "resuming"),
    "paused":    NovaAction("UnpauseServer", {"unpause": None},  "unpausing"),
    "stopped":   NovaAction("StartServer",   {"os-start": None}, "powering-on"),
}  # fmt: skip
"""How a server resumes, by its `vm_state`."""

FIRST_RESUME = {SuspendWay.SUSPEND: "suspended", SuspendWay.PAUSE: "paused", SuspendWay.STOP: "stopped"}
REBOOT = NovaAction("RebootServer", {"reboot": {"type": "SOFT"}}, "rebooting")
"""A soft reboot: a hard one would also start a server that is suspended."""


class CreateGuard:
    """What this process knows of the creates in one project: those under way, and those without an answer."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()
        self._unanswered: dict[str, float] = {}

    def lock(self, key: str) -> asyncio.Lock:
        """Return the lock of a key in this event loop."""
        name = id(asyncio.get_running_loop()), key
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    def note(self, key: str, settle_s: float) -> None:
        """Note that a create has no answer yet."""
        self._unanswered[key] = self._clock() + settle_s

    def clear(self, key: str) -> None:
        """Note that a create was answered, or that its server was seen."""
        self._unanswered.pop(key, None)

    def may_be_accepted(self, key: str) -> bool:
        """Tell whether an earlier create of a key may still be accepted."""
        if self._clock() < self._unanswered.get(key, 0.0):
            return True
        self.clear(key)
        return False


@cache  # bounded by: the projects and regions of connections
def guard_of(project: str, region: str) -> CreateGuard:  # noqa: ARG001 - they are what the cache goes by
    """Return the guard of a project in a region, the same for all drivers of this process."""
    return CreateGuard()


class OpenStackMachines(machines.CloudMachines):
    """Creates servers and acts on them; remembers the tokens of reboots, because Nova would repeat a reboot."""

    def __init__(
        self,
        calls: OpenStackClient,
        lister: ServerLister,
        images: OpenStackImages,
        resources: OpenStackResources,
        settings: OpenStackSettings,
    ) -> None:
        self._calls, self._lister, self._images, self._resources = calls, lister, images, resources
        self._settings, self._way = settings, settings.suspend
        self._rebooted = machines.Remembered[str]()

    async def create(self, wanted: Mapping[str, port.MachineSpec]) -> Mapping[str, port.Outcome]:
        """Create machines; raises `CloudCallFailed`."""
        if not wanted:
            return {}
        guard = guard_of(await self._calls.project_id(), self._settings.region)
        async with AsyncExitStack() as stack:
            for key in sorted(wanted):  # always in one order, so that two calls never wait for each other
                await stack.enter_async_context(guard.lock(key))
            return await self._create_absent(guard, wanted)

    async def _create_absent(
        self, guard: CreateGuard, wanted: Mapping[str, port.MachineSpec]
    ) -> dict[str, port.Outcome]:
        live, changed = await asyncio.gather(
            self._lister.list_servers(wanted), self._lister.list_changes(datetime.now(UTC) - REMEMBERED, wanted)
        )
        present = machines.FoundMachines([*live.machines, *changed.machines]).by_key()
        failed = live.failed or changed.failed
        if failed is not None:  # what was listed exists, and of the others nothing is known
            existing = {
                key: machines.existing_outcome(machine)
                for key, machine in present.items()
                if machine.state not in machines.GONE
            }
            return {**{key: failed.outcome_for(key) for key in wanted}, **existing}
        for key in present:
            guard.clear(key)
        absent = {key: machine_spec for key, machine_spec in wanted.items() if key not in present}
        made = await machines.each_outcome(absent, partial(self._make, guard))
        accepted = {key: outcome for key, outcome in made.items() if isinstance(outcome, port.CallAccepted)}
        lost = await self._remove_duplicates(accepted, live.time or datetime.now(UTC)) if accepted else {}
        return {
            **{key: machines.existing_outcome(machine) for key, machine in present.items()},
            **made,
            **lost,
        }

    async def _make(self, guard: CreateGuard, machine_spec: port.MachineSpec) -> port.Outcome:
        key = machine_spec.key
        if guard.may_be_accepted(key):
            return port.CallUnanswered(key, "an earlier create of this key had no answer, and may still be accepted")
        if len(f"{KEY_TEXT}{key}") > MAX_TEXT:
            return port.CallRefused(
                key, port.RefusalReason.INVALID, f"the key is too long: Nova keeps {MAX_TEXT} characters"
            )
        try:
            body = create_body(machine_spec, await self._plan(machine_spec))
            guard.note(key, self._settings.settle_s)  # before it is sent: a cancelled caller learns of no answer
            made = await self._calls.record(ApiCall("CreateServer", "compute", "POST", "/servers", body), "server")
        except CloudCallFailed as failed:
            if not isinstance(failed.outcome, port.CallUnanswered):
                guard.clear(key)
            raise
        guard.clear(key)
        return port.CallAccepted(key, str(made["id"]))

    async def _plan(self, machine_spec: port.MachineSpec) -> ServerPlan:
        flavor, image = await asyncio.gather(
            self._images.size(machine_spec.spec), self._images.image(machine_spec.image)
        )
        network = machine_spec.resources.get(port.ResourceKind.NETWORK, "")
        if subnet := machine_spec.resources.get(port.ResourceKind.SUBNET):
            network = await self._resources.network_of(subnet)
        return ServerPlan(
            flavor.native_id, image.native_id, network, self._settings.zone, self._settings.has_config_drive
        )

    async def _remove_duplicates(
        self, accepted: Mapping[str, port.CallAccepted], since: datetime
    ) -> dict[str, port.Outcome]:
        """Delete the servers that were just made, where another process has made an older one; returns the outcomes."""
        seen = await self._lister.list_new(since, accepted)
        lost: dict[str, port.Outcome] = {}
        for key, outcome in accepted.items():
            first = _first([machine for machine in seen.machines if machine.key == key], outcome.native_id)
            if first is None:
                continue
            try:
                await self._calls.call(ApiCall("DeleteServer", "compute", "DELETE", f"/servers/{outcome.native_id}"))
            except CloudCallFailed as failed:
                lost[key] = port.CallUnanswered(key, f"{first.native_id} has the same key, and {failed}")
            else:
                lost[key] = port.AlreadyDone(key, first.native_id)
        return lost

    # --- actions ------------------------------------------------------------------------------------------------------

    async def act(self, action: port.MachineAction, handles: Sequence[port.MachineHandle]) -> Sequence[port.Outcome]:
        """Carry out an action on machines; one outcome for each, in order."""
        unknown = [handle.key for handle in handles if not handle.native_id]
        natives = (await self._lister.list_servers(unknown)).native_ids(unknown)
        work = (outcome_of(handle.key, self._act_on(action, handle, natives)) for handle in handles)
        return await asyncio.gather(*work)

    async def _act_on(
        self, action: port.MachineAction, handle: port.MachineHandle, natives: Mapping[str, str | CloudCallFailed]
    ) -> port.Outcome:
        native = handle.native_id or natives.get(handle.key)
        if native is None:
            return port.CallRefused(
                handle.key, port.RefusalReason.NOT_FOUND, f"no machine carries the key {handle.key!r}"
            )
        if isinstance(native, CloudCallFailed):
            return native.outcome_for(handle.key)
        is_done = await self._carry_out(action, native, handle.token)
        return (port.AlreadyDone if is_done else port.CallAccepted)(handle.key, native)

    async def _carry_out(self, action: port.MachineAction, native: str, token: str) -> bool:
        """Carry out an action on a server; returns whether it was done already."""
        match action:
            case port.MachineAction.TERMINATE:
                call = self._calls.call(ApiCall("DeleteServer", "compute", "DELETE", f"/servers/{native}"))
                return await found_or_none(call) is None  # a server that is deleted soon is no longer found
            case port.MachineAction.REBOOT:
                return await self._reboot(native, token)
            case port.MachineAction.SUSPEND:
                try:
                    await self._send(native, SUSPEND[self._way])
                except CloudCallFailed as failed:
                    vm_state, task = await self._states_after_conflict(native, failed)
                    if (not task and vm_state in RESUME) or task in {action.task for action in SUSPEND.values()}:
                        return True
                    raise
                return False
            case port.MachineAction.RESUME:
                first = RESUME[FIRST_RESUME[self._way]]
                try:
                    await self._send(native, first)
                except CloudCallFailed as failed:
                    vm_state, task = await self._states_after_conflict(native, failed)
                    if (not task and vm_state == "active") or task in {action.task for action in RESUME.values()}:
                        return True
                    if task or RESUME.get(vm_state, first) is first:
                        raise
                    await self._send(native, RESUME[vm_state])  # somebody suspended it in another way
                return False

    async def _reboot(self, native: str, token: str) -> bool:
        if token and self._rebooted.get(native) == token:
            return True
        await self._send(native, REBOOT)
        self._rebooted[native] = token
        return False

    async def _states_after_conflict(self, native: str, failed: CloudCallFailed) -> tuple[str, str]:
        """Return the two states of a server that an action was refused for; raises another failure as it is."""
        if failed.why is not port.RefusalReason.CONFLICT:
            raise failed
        call = ApiCall("GetServer", "compute", "GET", f"/servers/{native}")
        return states_of(await self._calls.record(call, "server"))

    async def _send(self, native: str, action: NovaAction) -> None:
        await self._calls.call(ApiCall(action.name, "compute", "POST", f"/servers/{native}/action", dict(action.body)))


def _first(seen: Collection[port.Observation], own: str) -> port.Observation | None:
    """Return the oldest live machine of a key, if it is not our own."""
    live = sorted((machine for machine in seen if machine.state not in machines.GONE), key=machines.age_rank)
    is_listed = own in {machine.native_id for machine in live}  # else nobody knows which one is older
    return live[0] if is_listed and live[0].native_id != own else None
