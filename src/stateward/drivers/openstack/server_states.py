"""The states of Nova's servers in the words of the port: pure tables.

Nova has two states for a server: `vm_state` is the last stable one, `task_state` is what is being done to it. Neither
alone tells where a server is: an active server whose task is `suspending` is on its way, and a building server without
a task is between two steps. A combination that is not in these tables is `OTHER`, never a guess.
"""

from stateward.drivers.port import MachineState

STABLE = {
    "building":          MachineState.PENDING,
    "active":            MachineState.RUNNING,
    "paused":            MachineState.SUSPENDED,
    "suspended":         MachineState.SUSPENDED,
    "stopped":           MachineState.SUSPENDED,
    "resized":           MachineState.RUNNING,
    "soft-delete":       MachineState.TERMINATED,
    "deleted":           MachineState.TERMINATED,
    "error":             MachineState.FAILED,
}  # fmt: skip
"""What a server without a task is; rescued and shelved ones are for their owners to bring back."""

TASKS = {
    "suspending":              MachineState.SUSPENDING,
    "pausing":                 MachineState.SUSPENDING,
    "powering-off":            MachineState.SUSPENDING,
    "resuming":                MachineState.RESUMING,
    "unpausing":               MachineState.RESUMING,
    "powering-on":             MachineState.RESUMING,
    "rebooting":               MachineState.REBOOTING,
    "reboot_pending":          MachineState.REBOOTING,
    "reboot_started":          MachineState.REBOOTING,
    "rebooting_hard":          MachineState.REBOOTING,
    "reboot_pending_hard":     MachineState.REBOOTING,
    "reboot_started_hard":     MachineState.REBOOTING,
    "deleting":                MachineState.TERMINATING,
    "soft-deleting":           MachineState.TERMINATING,
    "rebuilding":              MachineState.PENDING,
    "rebuild_block_device_mapping": MachineState.PENDING,
    "rebuild_spawning":        MachineState.PENDING,
}  # fmt: skip
"""What a server is while something is done to it, whatever it was before."""

HARMLESS_TASKS = frozenset(
    {
        "image_snapshot",
        "image_snapshot_pending",
        "image_pending_upload",
        "image_uploading",
        "image_backup",
        "migrating",
        "updating_password",
        "resize_prep",
    }
)
"""Tasks during which a server stays what it is."""

STATUSES = {
    "ACTIVE": "active",
    "BUILD": "building",
    "DELETED": "deleted",
    "ERROR": "error",
    "PAUSED": "paused",
    "SHUTOFF": "stopped",
    "SOFT_DELETED": "soft-delete",
    "SUSPENDED": "suspended",
}
"""The `vm_state` of a status, for clouds whose policies hide the extended states."""

GONE = frozenset({MachineState.TERMINATING, MachineState.TERMINATED})


def machine_state(vm_state: str, task_state: str) -> MachineState:
    """Return what a server is, by its two states."""
    if vm_state in ("deleted", "soft-delete"):
        return MachineState.TERMINATED
    if not task_state or task_state in HARMLESS_TASKS or (vm_state == "building" and task_state not in TASKS):
        return STABLE.get(vm_state, MachineState.OTHER)
    return TASKS.get(task_state, MachineState.OTHER)


def native_state(vm_state: str, task_state: str) -> str:
    """Return both states as one text."""
    return f"{vm_state}/{task_state}" if task_state else vm_state
