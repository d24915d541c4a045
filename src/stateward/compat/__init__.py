"""The designs' own names, for programs that embed a lifecycle; the server uses none of them.

    validate_transition, TRANSITION_STATES    which transitions the OpenvCloud design allows
    LeaseStatus, ReservationStatus,           the decorator of the Blazar design, and questions about its statuses;
    EventStatus, lease_status                 `performs` is the same decorator for any lifecycle
    IntentionLock, LifecycleActionManager     the locks of the Lattice design, in the memory of one process

What the server does instead is durable: the engine checks and moves states and takes locks in the transactions that
accept and end operations.
"""

from stateward.compat.action_locks import (
    ActionLock,
    ActionUnlocker,
    IntentionLock,
    LifecycleActionManager,
    LockConflict,
    Unlocker,
)
from stateward.compat.decorated_actions import (
    ActionRefused,
    AsyncStateHolder,
    AttributeHolder,
    Contended,
    StateHolder,
    performs,
)
from stateward.compat.lease_status import EventStatus, LeaseStatus, PartStatuses, ReservationStatus, lease_status
from stateward.domains.ovc.compat import TRANSITION_STATES, validate_transition

__all__ = [
    "TRANSITION_STATES",
    "ActionLock",
    "ActionRefused",
    "ActionUnlocker",
    "AsyncStateHolder",
    "AttributeHolder",
    "Contended",
    "EventStatus",
    "IntentionLock",
    "LeaseStatus",
    "LifecycleActionManager",
    "LockConflict",
    "PartStatuses",
    "ReservationStatus",
    "StateHolder",
    "Unlocker",
    "lease_status",
    "performs",
    "validate_transition",
]
