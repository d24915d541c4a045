"""Workloads in processes of their own, which take turns round by round, so that all are disturbed alike."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import IO

import msgspec
from msgspec import Struct

from bench.engine.workload import RoundResult
from bench.measure import Timing


class WorkloadSpec(Struct, frozen=True):
    """A workload: its name for the reader, the arguments of its process, and its amount of work in a round."""

    name: str
    command: tuple[str, ...]
    amount: int


class Result(Struct, frozen=True):
    """The rounds of a workload."""

    spec: WorkloadSpec
    rounds: tuple[RoundResult, ...]

    @property
    def timing(self) -> Timing:
        """The seconds per action, round by round."""
        return Timing(self.spec.name, tuple(one.seconds / self.spec.amount for one in self.rounds))

    @property
    def cpu(self) -> float:
        """The part of one processor that it used."""
        return median(one.cpu / one.seconds for one in self.rounds)

    @property
    def resident(self) -> int:
        """The bytes in memory after the last round."""
        return self.rounds[-1].resident

    def rate(self) -> str:
        """Return how many actions it does in a second."""
        return f"  {1 / self.timing.seconds:9,.0f} a second  {self.spec.name}"


class WorkloadProcess:
    """The process of a workload."""

    def __init__(self, spec: WorkloadSpec) -> None:
        self._spec = spec
        command = [sys.executable, "-m", "bench.engine.workload_process", *spec.command]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def _in(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    def answer(self) -> str:
        """Return the next line of its output."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._spec.name} has ended with {self._process.wait()}")
        return line

    def run_round(self) -> RoundResult:
        """Run a round."""
        self._in.write(f"{self._spec.amount}\n")
        self._in.flush()
        return msgspec.json.decode(self.answer(), type=RoundResult)

    def close(self) -> None:
        """End the process."""
        self._in.close()
        self._process.wait()


@contextmanager
def workload_processes(specs: Sequence[WorkloadSpec]) -> Iterator[list[WorkloadProcess]]:
    """Start the processes of all workloads, and wait until they are ready."""
    with ExitStack() as stack:
        started = [WorkloadProcess(spec) for spec in specs]
        for process in started:
            stack.callback(process.close)
        for process in started:
            process.answer()
        yield started


def run_in_turns(specs: Sequence[WorkloadSpec], rounds: int) -> list[Result]:
    """Run rounds of all workloads in turns; the first round warms up and is not counted."""
    with workload_processes(specs) as started:
        results = [[process.run_round() for process in started] for _ in range(rounds + 1)][1:]
    return [Result(spec, tuple(column)) for spec, column in zip(specs, zip(*results, strict=True), strict=True)]
