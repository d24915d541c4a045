"""The steps of an operation: everything that its handler has stored so far, as one JSON object.

The key of a finished step is its name, and the value its result. Other keys begin with a prefix, which says what they
are about; so no step may have a name that begins with one. The order of the keys is the order in which steps finished.
"""

from typing import Any

import msgspec

from stateward.engine.typed_values import MASK
from stateward.errors import BadInput
from stateward.store.records import to_json

PHASE = "phase: "  # null: the phase has ended
CHILDREN = "children: "  # the number of requests of a step that children carry out
RETRY = "retry: "  # how often the step has failed; or, when it is given up, the error
SLEEP = "sleep: "  # the time until which the operation sleeps
WAIT = "wait: "  # the signal, and its payload; while the operation waits, the time until which it does
UNDO = "undo: "  # null: the step is to be undone if the operation fails; or UNDONE, or the error
END = "end: "
TIME = "time: "  # when the step, sleep, wait or undo began and ended, as Unix times
ATTEMPT = (
    "attempt: "  # a failed attempt of the operation or of a step: its times, its error, when the next one may begin
)
CALL = "call: "  # a call of a provider, see `provider_calls`
CALLS_DROPPED = f"{CALL}dropped"  # how many calls are kept no more
END_AFTER_UNDO = f"{END}after undo"  # the end of a failed or cancelled operation, which undoes its steps first
PREFIXES = (PHASE, CHILDREN, RETRY, SLEEP, WAIT, UNDO, END, TIME, ATTEMPT, CALL)

OF_TIMELINE = (TIME, ATTEMPT, CALL)
"""What only the timeline of an operation shows."""

MAX_ATTEMPTS_KEPT = 20
"""How many failed attempts are kept, the latest ones."""

UNDONE = "done"

Steps = dict[str, Any]


def check_step_name(step: str) -> None:
    """Refuse a name under which something else is stored."""
    if step.startswith(PREFIXES):
        raise BadInput("step", step, f"a name that begins with none of {', '.join(map(repr, PREFIXES))}")


def note_attempt(steps: Steps, name: str, began: float, ended: float, error: str, again: float) -> None:
    """Record a failed attempt, and forget the oldest if there are too many."""
    kept = [key for key in steps if key.startswith(ATTEMPT)]
    for key in kept[: 1 - MAX_ATTEMPTS_KEPT]:
        del steps[key]
    steps[f"{ATTEMPT}{name}"] = {"began": began, "ended": ended, "error": error, "again": again}


def without_times(steps: Steps) -> Steps:
    """Return steps without the records of times, attempts and calls, which the timeline of an operation shows."""
    return {key: value for key, value in steps.items() if not key.startswith(OF_TIMELINE)}


def without_attempts(steps: str) -> str:
    """Return stored steps without failed attempts and calls, whose errors and places not everybody may see."""
    if f'"{ATTEMPT}' not in steps and f'"{CALL}' not in steps:
        return steps
    hidden = (ATTEMPT, CALL)
    return to_json({key: value for key, value in msgspec.json.decode(steps).items() if not key.startswith(hidden)})


def has_times(steps: str) -> bool:
    """Return whether stored steps have records of times, attempts or calls."""
    return any(f'"{prefix}' in steps for prefix in OF_TIMELINE)


def pending_undos(steps: Steps) -> list[str]:
    """Return the finished steps that are still to be undone, the last one first."""
    return [step for step in reversed(steps) if steps.get(f"{UNDO}{step}", UNDONE) is None]


def failed_undos(steps: Steps) -> dict[str, str]:
    """Return the errors of the undos that have failed, by their steps."""
    return {
        key.removeprefix(UNDO): value["error"]
        for key, value in steps.items()
        if key.startswith(UNDO) and isinstance(value, dict)
    }


def is_in_saga(steps: str) -> bool:
    """Return whether stored steps can be undone, or an operation sleeps, waits or retries a step between claims."""
    return any(f'"{prefix}' in steps for prefix in (UNDO, SLEEP, WAIT, RETRY))


def awaited_signal(steps: str) -> str | None:
    """Return the name of the signal for which an operation waits, from its stored steps."""
    if f'"{WAIT}' not in steps:
        return None
    waits = (value for key, value in msgspec.json.decode(steps).items() if key.startswith(WAIT))
    return next((value["signal"] for value in waits if "until" in value), None)


def hide_step_results(steps: str) -> str:
    """Return stored steps without the results of steps and the payloads of signals.

    A handler needs them as they are after a crash, so that secrets in them cannot be masked when they are stored.
    """
    if steps == "{}":
        return steps
    return to_json({key: _without_result(key, value) for key, value in msgspec.json.decode(steps).items()})


def _without_result(key: str, value: Any) -> Any:  # noqa: ANN401 - plain JSON
    if value is None or isinstance(value, bool) or key.startswith((PHASE, CHILDREN, RETRY, SLEEP, UNDO, *OF_TIMELINE)):
        return value
    if key.startswith((WAIT, END)):
        return {name: MASK if name in _RESULTS and part is not None else part for name, part in value.items()}
    return MASK


_RESULTS = ("payload", "result", "seen")
"""The fields of waits and ends that come from handlers and signals."""
