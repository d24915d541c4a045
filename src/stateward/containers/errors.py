"""The errors of container engines: a refusal is an answer, and no answer is neither a yes nor a no."""

from enum import StrEnum

from stateward.errors import StatewardError


class EngineRefusal(StrEnum):
    """Why an engine refuses a call."""

    IMAGE_MISSING = "image missing"
    NAME_TAKEN = "name taken"
    PORT_TAKEN = "port taken"
    NOT_FOUND = "not found"
    CONFLICT = "conflict"  # not in this state
    IN_USE = "in use"
    OUT_OF_DISK = "out of disk"
    INVALID = "invalid"
    UNAUTHORIZED = "unauthorized"
    DAMAGED = "damaged"  # the engine was killed while it started or removed a container: remove it by force
    FAILED = "failed"  # the engine tried, and says why it did not work


class EngineRefused(StatewardError, code="container_engine_refused"):
    """The engine has answered no."""

    reason: EngineRefusal
    call: str
    message: str
    text = "the container engine refused {call} ({reason}): {message}"


class EngineUnavailable(StatewardError, code="container_engine_unavailable", retry=True):
    """The engine has not answered. If `sent`, the call may have had its effect: list before sending it again."""

    call: str
    message: str
    sent: bool
    text = "no answer of the container engine to {call}: {message}"


class ExecTimedOut(StatewardError, code="container_command_timed_out"):
    """A command in a container did not end in time; if not `is_over`, it could not be killed and may still run."""

    container: str
    seconds: float
    is_over: bool

    def __str__(self) -> str:
        end = "was killed" if self.is_over else "may still run, because it could not be killed"
        return f"the command in container {self.container} did not end in {self.seconds:g} s, and {end}"
