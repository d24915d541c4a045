"""Actions on machines. Azure has no calls for many machines: each machine gets its own call, and its own answer.

A restart has no token at Azure. The driver remembers the tokens of the restarts that Azure has accepted; if the answer
to a restart is lost, a repetition restarts the machine again.
"""

from stateward.drivers.azure.arm_client import ArmClient
from stateward.drivers.azure.arm_names import VIRTUAL_MACHINE, arm_name
from stateward.drivers.azure.vm_creation import MACHINES, MAX_REMEMBERED_KEYS, VmCreation
from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.port import AlreadyDone, CallAccepted, MachineAction, MachineHandle, Outcome

ACTION_METHODS = {
    MachineAction.SUSPEND: "begin_deallocate",
    MachineAction.RESUME: "begin_start",
    MachineAction.REBOOT: "begin_restart",
}


class VmActions:
    """Carries out actions, and remembers the tokens of restarts."""

    def __init__(self, arm: ArmClient, machines: VmCreation) -> None:
        self._arm, self._machines = arm, machines
        self._restarted: dict[str, str] = {}

    async def act(self, action: MachineAction, handle: MachineHandle) -> Outcome:
        """Carry out an action on a machine."""
        if action is MachineAction.TERMINATE:
            return await self._machines.remove(handle.key)
        name = arm_name(handle.key)
        is_restart = action is MachineAction.REBOOT
        try:
            scope = await self._arm.scope()
            native_id = scope.id(VIRTUAL_MACHINE, name)
            if is_restart and handle.token and self._restarted.get(handle.key) == handle.token:
                return AlreadyDone(handle.key, native_id)
            await self._arm.call(f"{MACHINES}.{ACTION_METHODS[action]}", scope.group, name)
        except CloudCallFailed as failed:
            return failed.outcome_for(handle.key)
        if is_restart:
            self._remember(handle)
        return CallAccepted(handle.key, native_id)

    def _remember(self, handle: MachineHandle) -> None:
        self._restarted.pop(handle.key, None)
        self._restarted[handle.key] = handle.token
        if len(self._restarted) > MAX_REMEMBERED_KEYS:
            del self._restarted[next(iter(self._restarted))]
