"""A container engine in memory, behind the port of the real ones: for tests and benchmarks, with faults on demand."""

from stateward.testing.containers.simulated_engine import SimulatedEngine
from stateward.testing.containers.simulated_faults import SimulatedFaults
from stateward.testing.containers.simulated_programs import ProgramRun, stdout

__all__ = ["ProgramRun", "SimulatedEngine", "SimulatedFaults", "stdout"]
