"""The test kit: an engine in virtual time, crashes at every point, random workloads with faults, and model checking.

    crash_everywhere       kills a scenario's process at every commit and every await, and checks what the next one does
    interleave_everywhere  begins a second action at every await of a first one, and checks what both leave behind
    simulate               runs random workloads made of a domain's tables, under crashes and faults
    explore                tries all interleavings of a protocol that is declared as pure functions
    Effects                the ledger that a fake provider writes to, so that an effect that happens twice is found

The fixtures `engine` and `engine_factory` are in the pytest plug-in, which pytest loads by itself. Everything is
deterministic: what fails once fails again.
"""

from stateward.testing.crash_world import CrashPoint, CrashRun
from stateward.testing.crashes import CrashReport, PromiseBroken, crash_everywhere
from stateward.testing.domain_simulation import (
    SimulatedState,
    SimulationFailed,
    SimulationReport,
    do_nothing,
    simulate,
)
from stateward.testing.effects import Effects
from stateward.testing.engines import EngineFactory
from stateward.testing.handler_calls import CodeLine
from stateward.testing.interleaving_world import InterleavingPoint, InterleavingRun
from stateward.testing.interleavings import InterleavingReport, RaceFound, interleave_everywhere
from stateward.testing.protocols import (
    NETWORK,
    Bounds,
    Exploration,
    FaultBudget,
    ModelMessage,
    ModelParty,
    Predicate,
    Protocol,
    ProtocolViolation,
    Step,
    explore,
)
from stateward.testing.virtual_loop import VirtualLoop

__all__ = [
    "NETWORK",
    "Bounds",
    "CodeLine",
    "CrashPoint",
    "CrashReport",
    "CrashRun",
    "Effects",
    "EngineFactory",
    "Exploration",
    "FaultBudget",
    "InterleavingPoint",
    "InterleavingReport",
    "InterleavingRun",
    "ModelMessage",
    "ModelParty",
    "Predicate",
    "PromiseBroken",
    "Protocol",
    "ProtocolViolation",
    "RaceFound",
    "SimulatedState",
    "SimulationFailed",
    "SimulationReport",
    "Step",
    "VirtualLoop",
    "crash_everywhere",
    "do_nothing",
    "explore",
    "interleave_everywhere",
    "simulate",
]
