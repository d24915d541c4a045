"""What a driver's answer means for the work that asked: drivers know nothing of the engine, and say what happened."""

from stateward.drivers import Accepted, Already, Outcome, Refused, Transient
from stateward.drivers import Throttled as Slow
from stateward.engine import Permanent, Temporary, Throttled, Unknown


def answered(outcome: Outcome) -> None:
    """Read an outcome: return if it was taken, and raise what is to follow if not."""
    match outcome:
        case Accepted() | Already():
            return
        case Refused():
            raise Permanent(f"{outcome.why}: {outcome.message}")
        case Slow():
            raise Throttled(outcome.message or "a pause was asked for", after=outcome.after)
        case Transient():
            raise Temporary(outcome.message)
        case _:
            raise Unknown(outcome.message)
