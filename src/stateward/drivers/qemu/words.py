"""What QEMU's words for a machine mean."""

from stateward.drivers.port import MachineState

STATES = {
    "running":        MachineState.RUNNING,
    "paused":         MachineState.SUSPENDED,
    "suspended":      MachineState.SUSPENDED,
    "prelaunch":      MachineState.PENDING,
    "inmigrate":      MachineState.PENDING,
    "shutdown":       MachineState.TERMINATING,
    "internal-error": MachineState.FAILED,
    "guest-panicked": MachineState.FAILED,
}  # fmt: skip


def state_of(word: str) -> MachineState:
    """Return what a word of QEMU's means; one that is not known here is no reason to guess."""
    return STATES.get(word, MachineState.OTHER)
