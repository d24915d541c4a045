"""Actions on instances: one call for each machine, by the name that its key gives.

An action is sent at once, without a look at the machine. Compute Engine refuses it in a wrong state, with texts that
differ from case to case; so after a refusal the state of the instance says whether the action is done already, is not
possible, or needs another call (a stopped machine is started, a suspended one resumed). The token of an action is its
request id: a repeated reboot is one reboot.
"""

import asyncio
from collections.abc import Sequence

from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.gcp.errors import is_not_ready
from stateward.drivers.gcp.gce_client import GceClient
from stateward.drivers.gcp.gce_machines import ACTIONS, STOPPED, name_of, request_id
from stateward.drivers.gcp.instance_launch import InstanceLaunch
from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    MachineAction,
    MachineHandle,
    Outcome,
    RefusalReason,
)

MAX_REMEMBERED_DELETES = 10_000


class GceActions:
    """Carries out actions, and remembers which instances it has deleted: listings show them as if they stopped."""

    def __init__(self, calls: GceClient, launch: InstanceLaunch) -> None:
        self._calls, self._launch = calls, launch
        self.deleting: dict[str, None] = {}

    async def act(self, action: MachineAction, handles: Sequence[MachineHandle]) -> Sequence[Outcome]:
        """Carry out an action on machines; one outcome for each, in order. The pool limits the calls at once."""
        different = {handle.key: handle for handle in reversed(handles)}
        done = await asyncio.gather(*(self._act(action, handle) for handle in different.values()))
        outcomes = {outcome.key: outcome for outcome in done}
        return [outcomes[handle.key] for handle in handles]

    async def _act(self, action: MachineAction, handle: MachineHandle) -> Outcome:
        if action is MachineAction.TERMINATE and self._launch.forget(handle.key):
            return AlreadyDone(handle.key)  # it was never created
        try:
            await self._send(ACTIONS[action].call, handle)
        except CloudCallFailed as failed:
            if is_not_ready(failed) or failed.why in (RefusalReason.INVALID, RefusalReason.CONFLICT):
                return await self._after_refusal(action, handle, failed)
            return failed.outcome_for(handle.key)
        if action is MachineAction.TERMINATE:
            self._remember_delete(name_of(handle.key))
        return CallAccepted(handle.key, name_of(handle.key))

    async def _send(self, call: str, handle: MachineHandle) -> None:
        fields = {"request_id": request_id(call, handle.key, handle.token)} if handle.token else {}
        await self._calls.call(call, instance=name_of(handle.key), **fields)

    async def _after_refusal(self, action: MachineAction, handle: MachineHandle, refused: CloudCallFailed) -> Outcome:
        native, how = name_of(handle.key), ACTIONS[action]
        try:
            state = str((await self._calls.call("instances.get", instance=native)).status)
            if action is MachineAction.RESUME and state in STOPPED:
                await self._send("instances.start", handle)
                return CallAccepted(handle.key, native)
        except CloudCallFailed as failed:
            return failed.outcome_for(handle.key)
        if state in how.done_states:
            return AlreadyDone(handle.key, native)
        if state in how.possible_states and not is_not_ready(refused):
            return refused.outcome_for(handle.key)
        text = f"the machine is {state}; {refused.outcome.message}"
        return CallRefused(handle.key, RefusalReason.CONFLICT, text)

    def _remember_delete(self, name: str) -> None:
        self.deleting[name] = None
        if len(self.deleting) > MAX_REMEMBERED_DELETES:
            del self.deleting[next(iter(self.deleting))]
