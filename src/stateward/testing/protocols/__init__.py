"""Model checking of protocols: all interleavings of parties that crash, over a network that loses and reorders.

A lifecycle's table says what one party may do to one state. It does not show whether several parties that keep to their
tables agree in the end if messages are lost, duplicated and reordered and any party may crash. No test by example
proves that either. So a protocol is declared as parties made of pure functions. `explore` tries all possible steps,
breadth first, within budgets of faults, and reports the shortest way to a violation.
"""

from stateward.testing.protocols.protocol_model import (
    NETWORK,
    Bounds,
    FaultBudget,
    ModelMessage,
    ModelParty,
    Predicate,
    Protocol,
    Step,
)
from stateward.testing.protocols.search import Exploration, ProtocolViolation, Trace, ViolationKind, explore

__all__ = [
    "NETWORK",
    "Bounds",
    "Exploration",
    "FaultBudget",
    "ModelMessage",
    "ModelParty",
    "Predicate",
    "Protocol",
    "ProtocolViolation",
    "Step",
    "Trace",
    "ViolationKind",
    "explore",
]
