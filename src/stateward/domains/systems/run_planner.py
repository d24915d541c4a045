"""The next step of a run of a job: which instances to start, given those that run and those that have ended (pure).

A run has `completions` indices, and each needs one instance that succeeds. The instance `2-0` is the first attempt at
index 2, and `2-1` the second. At most `parallelism` instances run at once. A failed index is tried again after its
back-off, until more instances have failed than the job has retries.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Literal

from msgspec import Struct

from stateward.domains.systems.definition import JobDefinition

MAX_BACKOFF_S = 600.0


class AttemptResult(Struct, frozen=True, array_like=True):
    """How an instance ended: its name, when that was noted, and its exit status, None if that is unknown."""

    name: str
    noted: float
    exit_status: int | None
    why: str = ""

    @property
    def index(self) -> int:
        """The index that it was an attempt at."""
        return index_of(self.name)


class RunStep(Struct, frozen=True):
    """The instances to start; how the run has ended, if it has; and when a back-off ends, if one is on."""

    start: tuple[str, ...] = ()
    outcome: Literal["succeeded", "retries"] | None = None
    due: float | None = None


def index_of(name: str) -> int:
    """Return the index of an instance, by its name."""
    return int(name.partition("-")[0])


def backoff_s(job: JobDefinition, failures: int) -> float:
    """Return the seconds before an index is tried again that has failed so often."""
    return float(min(MAX_BACKOFF_S, job.backoff * 2.0 ** min(failures - 1, 20)))


def next_run_step(job: JobDefinition, ended: Sequence[AttemptResult], running: Collection[str], now: float) -> RunStep:
    """Return the next step of a run; `running` are the instances that have not ended."""
    succeeded = {result.index for result in ended if result.exit_status == 0}
    failed = [result for result in ended if result.exit_status != 0]
    if len(succeeded) >= job.completions:
        return RunStep(outcome="succeeded")
    if len(failed) > job.retries:
        return RunStep(outcome="retries")
    failures = Counter(result.index for result in failed)
    due = {result.index: result.noted + backoff_s(job, failures[result.index]) for result in failed}
    busy = succeeded | {index_of(name) for name in running}
    free = [index for index in range(job.completions) if index not in busy]
    ready = [index for index in free if due.get(index, 0.0) <= now]
    room = max(0, job.parallelism - len(running))
    waiting = [due[index] for index in free if due.get(index, 0.0) > now]
    return RunStep(
        tuple(f"{index}-{failures[index]}" for index in ready[:room]), due=min(waiting) if waiting and room else None
    )
