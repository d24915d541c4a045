"""Answers of a container engine as outcomes and observations of the drivers' port."""

from stateward.containers import ContainerRecord, ContainerState, EngineRefusal, EngineRefused, EngineUnavailable
from stateward.drivers.container.reboot_records import RebootRecord
from stateward.drivers.port import (
    CallRefused,
    CallUnanswered,
    MachineState,
    Observation,
    RefusalReason,
    TransientFailure,
)

NAME_LABEL, SPEC_LABEL = "stateward.name", "stateward.spec"

REASONS = {
    EngineRefusal.IMAGE_MISSING: RefusalReason.NOT_FOUND,
    EngineRefusal.NAME_TAKEN: RefusalReason.CONFLICT,
    EngineRefusal.PORT_TAKEN: RefusalReason.CONFLICT,
    EngineRefusal.NOT_FOUND: RefusalReason.NOT_FOUND,
    EngineRefusal.CONFLICT: RefusalReason.CONFLICT,
    EngineRefusal.IN_USE: RefusalReason.IN_USE,
    EngineRefusal.OUT_OF_DISK: RefusalReason.CAPACITY,
    EngineRefusal.INVALID: RefusalReason.INVALID,
    EngineRefusal.UNAUTHORIZED: RefusalReason.AUTH,
}
"""What a refusal means. `FAILED` is missing: an engine that failed may succeed at the next attempt."""

STATES = {
    ContainerState.CREATED: MachineState.PENDING,
    ContainerState.RUNNING: MachineState.RUNNING,
    ContainerState.PAUSED: MachineState.SUSPENDED,
    ContainerState.RESTARTING: MachineState.REBOOTING,
    ContainerState.STOPPING: MachineState.TERMINATING,
    ContainerState.EXITED: MachineState.TERMINATED,
    ContainerState.REMOVING: MachineState.TERMINATING,
    ContainerState.DEAD: MachineState.FAILED,
    ContainerState.OTHER: MachineState.OTHER,
}

_DOWN = (ContainerState.STOPPING, ContainerState.EXITED)


def outcome_of(key: str, error: EngineRefused | EngineUnavailable) -> CallRefused | TransientFailure | CallUnanswered:
    """Return the outcome that an engine's error means."""
    if isinstance(error, EngineUnavailable):
        return CallUnanswered(key, str(error)) if error.sent else TransientFailure(key, str(error))
    if error.reason not in REASONS:
        return TransientFailure(key, str(error))
    return CallRefused(key, REASONS[error.reason], error.message)


def conflict(key: str, container: ContainerRecord) -> CallRefused:
    """Refuse an action in the present state of a container."""
    return CallRefused(key, RefusalReason.CONFLICT, f"its container is {native_state(container)}")


def native_state(container: ContainerRecord) -> str:
    """Return the engine's word for a state, with the exit code of a container that has ended."""
    if container.exit_code is None:
        return container.native_state
    return f"{container.native_state} ({container.exit_code})"


def observation(container: ContainerRecord, reboot: RebootRecord | None) -> Observation:
    """Return a container as a machine. One that is down in the middle of a reboot has not ended."""
    unconfirmed = reboot.token if reboot and not reboot.is_confirmed else ""
    is_rebooting = unconfirmed and container.state in _DOWN
    return Observation(
        container.key,
        container.id,
        MachineState.REBOOTING if is_rebooting else STATES[container.state],
        native_state(container),
        container.labels.get(NAME_LABEL, container.name),
        private_ip=next(iter(container.ips.values()), ""),
        ssh_port=0,
        details={
            "container": container.name,
            "image": container.image,
            "image_id": container.image_id,
            "spec": container.labels.get(SPEC_LABEL, ""),
        },
        reboot_tokens=(reboot.token,) if reboot and reboot.is_confirmed else (),
        unconfirmed_reboot=unconfirmed,
    )
