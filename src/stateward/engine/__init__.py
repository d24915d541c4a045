"""The durable engine: accept, claim, run, finish; lanes, timers, healer, watch."""

from stateward.engine.engine import Engine
from stateward.engine.errors import (
    AlreadyExists,
    Blocker,
    Denied,
    EngineNotEntered,
    Locked,
    MissingHandlers,
    NotFound,
    NothingToDo,
    OperationCancelled,
    OperationFailed,
    OperationTimedOut,
    Refused,
)
from stateward.engine.external_reports import ExternalReport, Sighting
from stateward.engine.finish.claim_reports import Ending
from stateward.engine.handlers import Handler, ObservedOutcome
from stateward.engine.job import ChildOutcome, Job
from stateward.engine.kind_builder import KindBuilder
from stateward.engine.kinds import Kind, Route, Rules, Why
from stateward.engine.queries import list_all
from stateward.engine.requests import Accepted, LockRequest, Request
from stateward.engine.snapshots import Completed, HistoryEntry, ObjectSnapshot, OperationSnapshot
from stateward.engine.thread_handlers import BlockingJob, JobStopped
from stateward.engine.unit_of_work import UnitOfWork
from stateward.engine.work_errors import (
    PastDeadline,
    Permanent,
    Retry,
    SignalTimedOut,
    StepFailed,
    Temporary,
    Throttled,
    Unknown,
    WorkError,
)
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, Operation, Timer, to_json

__all__ = [
    "Accepted",
    "AlreadyExists",
    "Blocker",
    "BlockingJob",
    "ChildOutcome",
    "Completed",
    "Denied",
    "Ending",
    "Engine",
    "EngineNotEntered",
    "ExternalReport",
    "Handler",
    "HistoryEntry",
    "Job",
    "JobStopped",
    "Key",
    "Kind",
    "KindBuilder",
    "LockRequest",
    "Locked",
    "MissingHandlers",
    "NotFound",
    "NothingToDo",
    "Object",
    "ObjectSnapshot",
    "ObservedOutcome",
    "Operation",
    "OperationCancelled",
    "OperationFailed",
    "OperationSnapshot",
    "OperationTimedOut",
    "PastDeadline",
    "Permanent",
    "Refused",
    "Request",
    "Retry",
    "Route",
    "Rules",
    "Selector",
    "Sighting",
    "SignalTimedOut",
    "StepFailed",
    "Temporary",
    "Throttled",
    "Timer",
    "UnitOfWork",
    "Unknown",
    "Why",
    "WorkError",
    "list_all",
    "to_json",
]
