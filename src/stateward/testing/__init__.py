"""The test kit: an engine in virtual time, crashes at every point, random workloads with faults, and model checking."""

from stateward.testing.crash_world import CrashPoint, CrashRun
from stateward.testing.crashes import CrashReport, PromiseBroken, crash_everywhere
from stateward.testing.effects import Effects
from stateward.testing.handler_calls import CodeLine
from stateward.testing.virtual_loop import VirtualLoop

__all__ = [
    "CodeLine",
    "CrashPoint",
    "CrashReport",
    "CrashRun",
    "Effects",
    "PromiseBroken",
    "VirtualLoop",
    "crash_everywhere",
]
