"""Actions on servers, one call for each.

Nova refuses an action in a wrong state with 409. The text names the state, but not whether the action is done already.
So the server is looked at after a 409, and its state decides: done, another way to do it, or a conflict.
"""

import asyncio
from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.openstack.cloud_client import ApiCall, OpenStackClient
from stateward.drivers.openstack.server_listing import ServerLister, by_key
from stateward.drivers.openstack.servers import states_of
from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    MachineAction,
    MachineHandle,
    Outcome,
    RefusalReason,
    Suspension,
)

MAX_REMEMBERED_REBOOTS = 10_000


class SuspendWay(StrEnum):
    """How the driver suspends servers: Nova has three ways, and a hypervisor may lack one."""

    SUSPEND = "suspend"
    PAUSE = "pause"
    STOP = "stop"

    @property
    def suspension(self) -> Suspension:
        """The capability that it is."""
        return Suspension.BY_STOPPING if self is SuspendWay.STOP else Suspension.NATIVE


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


class ServerActions:
    """Carries out actions, and remembers the tokens of reboots, because Nova would repeat a reboot."""

    def __init__(self, calls: OpenStackClient, lister: ServerLister, way: SuspendWay) -> None:
        self._calls, self._lister, self._way = calls, lister, way
        self._rebooted: dict[str, str] = {}

    async def act(self, action: MachineAction, handles: Sequence[MachineHandle]) -> Sequence[Outcome]:
        """Carry out an action on machines; one outcome for each, in order."""
        found = await self._resolve([handle.key for handle in handles if not handle.native_id])
        return await asyncio.gather(*(self._act_on(action, handle, found) for handle in handles))

    async def _resolve(self, keys: Sequence[str]) -> dict[str, str | CloudCallFailed]:
        """Find machines by their keys; a live one has priority over one that is gone."""
        seen = await self._lister.list_servers(keys)
        found: dict[str, str | CloudCallFailed] = {} if seen.failed is None else dict.fromkeys(keys, seen.failed)
        return {**found, **{key: one.native_id for key, one in by_key(seen.machines).items()}}

    async def _act_on(
        self, action: MachineAction, handle: MachineHandle, found: Mapping[str, str | CloudCallFailed]
    ) -> Outcome:
        native = handle.native_id or found.get(handle.key)
        if native is None:
            return CallRefused(handle.key, RefusalReason.NOT_FOUND, f"no machine carries the key {handle.key!r}")
        if isinstance(native, CloudCallFailed):
            return native.outcome_for(handle.key)
        try:
            is_done = await self._carry_out(action, native, handle.token)
        except CloudCallFailed as failed:
            return failed.outcome_for(handle.key)
        return (AlreadyDone if is_done else CallAccepted)(handle.key, native)

    async def _carry_out(self, action: MachineAction, native: str, token: str) -> bool:
        """Carry out an action on a server; returns whether it was done already."""
        match action:
            case MachineAction.TERMINATE:
                return await self._terminate(native)
            case MachineAction.REBOOT:
                return await self._reboot(native, token)
            case MachineAction.SUSPEND:
                return await self._suspend(native)
            case MachineAction.RESUME:
                return await self._resume(native)

    async def _terminate(self, native: str) -> bool:
        try:
            await self._calls.call(ApiCall("DeleteServer", "compute", "DELETE", f"/servers/{native}"))
        except CloudCallFailed as failed:
            if failed.why is not RefusalReason.NOT_FOUND:
                raise
            return True  # a server that is deleted soon is no longer found
        return False

    async def _reboot(self, native: str, token: str) -> bool:
        if token and self._rebooted.get(native) == token:
            return True
        await self._send(native, REBOOT)
        self._remember(native, token)
        return False

    async def _suspend(self, native: str) -> bool:
        try:
            await self._send(native, SUSPEND[self._way])
        except CloudCallFailed as failed:
            vm_state, task = await self._states_after_conflict(native, failed)
            if (not task and vm_state in RESUME) or task in {one.task for one in SUSPEND.values()}:
                return True
            raise
        return False

    async def _resume(self, native: str) -> bool:
        first = RESUME[FIRST_RESUME[self._way]]
        try:
            await self._send(native, first)
        except CloudCallFailed as failed:
            vm_state, task = await self._states_after_conflict(native, failed)
            if (not task and vm_state == "active") or task in {one.task for one in RESUME.values()}:
                return True
            if task or RESUME.get(vm_state, first) is first:
                raise
            await self._send(native, RESUME[vm_state])  # somebody suspended it in another way
        return False

    async def _states_after_conflict(self, native: str, failed: CloudCallFailed) -> tuple[str, str]:
        """Return the two states of a server that an action was refused for; raises another failure as it is."""
        if failed.why is not RefusalReason.CONFLICT:
            raise failed
        call = ApiCall("GetServer", "compute", "GET", f"/servers/{native}")
        return states_of(await self._calls.record(call, "server"))

    async def _send(self, native: str, action: NovaAction) -> None:
        await self._calls.call(ApiCall(action.name, "compute", "POST", f"/servers/{native}/action", dict(action.body)))

    def _remember(self, native: str, token: str) -> None:
        self._rebooted.pop(native, None)
        self._rebooted[native] = token
        if len(self._rebooted) > MAX_REMEMBERED_REBOOTS:
            del self._rebooted[next(iter(self._rebooted))]
