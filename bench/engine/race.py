"""A race: contestants in processes of their own take turns, round by round."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import IO

import msgspec
from msgspec import Struct

from bench.engine.contest import Lap
from bench.measure import Timing


class Runner(Struct, frozen=True):
    """Who runs: its name for the reader, what to start, and how much it does in a round."""

    name: str
    command: tuple[str, ...]
    amount: int


class Result(Struct, frozen=True):
    """The rounds of a runner."""

    runner: Runner
    laps: tuple[Lap, ...]

    @property
    def timing(self) -> Timing:
        """The seconds per action, round by round."""
        return Timing(self.runner.name, tuple(lap.seconds / self.runner.amount for lap in self.laps))

    @property
    def cpu(self) -> float:
        """The part of one processor that it used."""
        return median(lap.cpu / lap.seconds for lap in self.laps)

    @property
    def resident(self) -> int:
        """The bytes in memory after the last round."""
        return self.laps[-1].resident

    def rate(self) -> str:
        """Return how many actions it does in a second."""
        return f"  {1 / self.timing.seconds:9,.0f} a second  {self.runner.name}"


class Track:
    """A contestant's process."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        command = [sys.executable, "-m", "bench.engine.child", *runner.command]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def _in(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    def answer(self) -> str:
        """Return what it says next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._runner.name} has ended with {self._process.wait()}")
        return line

    def lap(self) -> Lap:
        """Let it run a round."""
        self._in.write(f"{self._runner.amount}\n")
        self._in.flush()
        return msgspec.json.decode(self.answer(), type=Lap)

    def close(self) -> None:
        """Let it go home."""
        self._in.close()
        self._process.wait()


@contextmanager
def tracks(runners: Sequence[Runner]) -> Iterator[list[Track]]:
    """Start all contestants, and wait until they are ready."""
    with ExitStack() as stack:
        started = [Track(runner) for runner in runners]
        for track in started:
            stack.callback(track.close)
        for track in started:
            track.answer()
        yield started


def race(runners: Sequence[Runner], rounds: int) -> list[Result]:
    """Let them race; the first round warms up and is not counted."""
    with tracks(runners) as started:
        laps = [[track.lap() for track in started] for _ in range(rounds + 1)][1:]
    return [Result(runner, tuple(column)) for runner, column in zip(runners, zip(*laps, strict=True), strict=True)]
