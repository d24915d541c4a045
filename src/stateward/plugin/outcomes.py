"""The translation of a driver's outcome into the engine's error policies.

Drivers do not know the engine: they return an outcome, and handlers raise the error that the engine acts on.
"""

from stateward.drivers import AlreadyDone, CallAccepted, CallRefused, Outcome, TransientFailure
from stateward.drivers import CallThrottled as Slow
from stateward.engine import Permanent, Temporary, Throttled, Unknown


def raise_for_outcome(outcome: Outcome) -> None:
    """Return if the provider accepted the call; otherwise raise Permanent, Throttled, Temporary or Unknown."""
    match outcome:
        case CallAccepted() | AlreadyDone():
            return
        case CallRefused():
            raise Permanent(f"{outcome.why}: {outcome.message}")
        case Slow():
            raise Throttled(outcome.message or "a pause was asked for", after=outcome.retry_after_s)
        case TransientFailure():
            raise Temporary(outcome.message)
        case _:
            raise Unknown(outcome.message)
