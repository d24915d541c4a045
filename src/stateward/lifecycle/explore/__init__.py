"""Walking every interleaving of a protocol between parties that crash, over a network that loses and reorders.

A lifecycle's table says what one party may do to one state. Whether several parties that each keep to their table
still agree in the end, when messages get lost, doubled and overtaken and anybody may die at any moment, no table
shows and no test by example proves. So a protocol is declared as parties made of pure functions, and `explore` tries
everything that can happen, breadth first, within stated budgets of faults: what it finds first is the shortest way to
go wrong.
"""

from stateward.lifecycle.explore.protocol_model import (
    NETWORK,
    Bounds,
    FaultBudget,
    ModelMessage,
    ModelParty,
    Predicate,
    Protocol,
    Step,
)
from stateward.lifecycle.explore.search import Exploration, ProtocolViolation, Trace, ViolationKind, explore

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
