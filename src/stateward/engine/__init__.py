"""The durable engine: accept, claim, run, finish; lanes, timers, healer, watch."""

from stateward.engine.engine import Engine
from stateward.engine.handlers import Handler, Job, Permanent, Seen, Temporary, Throttled, Unknown
from stateward.engine.kinds import Kind, Route
from stateward.engine.outcomes import Ending
from stateward.engine.remote import Word
from stateward.engine.requests import (
    Accepted,
    AlreadyExists,
    Blocker,
    Denied,
    Locked,
    LockWish,
    NotFound,
    Refused,
    Request,
)

__all__ = [
    "Accepted",
    "AlreadyExists",
    "Blocker",
    "Denied",
    "Ending",
    "Engine",
    "Handler",
    "Job",
    "Kind",
    "LockWish",
    "Locked",
    "NotFound",
    "Permanent",
    "Refused",
    "Request",
    "Route",
    "Seen",
    "Temporary",
    "Throttled",
    "Unknown",
    "Word",
]
