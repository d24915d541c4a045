"""The durable engine: accept, claim, run, finish; lanes, timers, healer, watch."""

from stateward.engine.engine import Engine
from stateward.engine.errors import AlreadyExists, Blocker, Denied, Locked, NotFound, Refused
from stateward.engine.external_reports import ExternalReport
from stateward.engine.finish.claim_reports import Ending
from stateward.engine.handlers import Handler, Job, ObservedOutcome, Permanent, Temporary, Throttled, Unknown
from stateward.engine.kinds import Kind, Route
from stateward.engine.requests import Accepted, LockRequest, Request

__all__ = [
    "Accepted",
    "AlreadyExists",
    "Blocker",
    "Denied",
    "Ending",
    "Engine",
    "ExternalReport",
    "Handler",
    "Job",
    "Kind",
    "LockRequest",
    "Locked",
    "NotFound",
    "ObservedOutcome",
    "Permanent",
    "Refused",
    "Request",
    "Route",
    "Temporary",
    "Throttled",
    "Unknown",
]
