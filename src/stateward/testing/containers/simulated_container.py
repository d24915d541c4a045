"""A container of the simulated engine; its state follows from its program and the clock."""

from collections.abc import Collection, Mapping
from secrets import token_hex

from msgspec.structs import replace

from stateward.containers.container_records import (
    NO_NETWORK,
    ContainerRecord,
    ContainerSpec,
    ContainerState,
    ContainerStats,
    LogChunk,
    PublishedPort,
)
from stateward.containers.engine_requests import secrets_volume
from stateward.testing.containers.simulated_programs import ProgramRun

FIRST_ANY_PORT = 40_000
SIMULATED_MEMORY_BYTES = 1 << 20
CPU_SHARE = 0.01
"""The part of a processor that a simulated program uses."""


def new_id() -> str:
    """Return a new id, as engines make them."""
    return token_hex(32)


MAX_CHUNKS = 10_000
"""How many pieces of its output a container keeps."""


class SimulatedContainer:
    """One container."""

    def __init__(self, id_: str, spec: ContainerSpec, labels: Mapping[str, str], image_id: str) -> None:
        self.id, self.spec, self.labels, self.image_id = id_, spec, labels, image_id
        self.ports: tuple[PublishedPort, ...] = ()
        self.commands = 0  # that run in it
        self._written: list[tuple[float, LogChunk]] = []
        self._started_at: float | None = None
        self._finished_at: float | None = None
        self._due: float | None = None  # when its program ends by itself
        self._frozen_at: float | None = None
        self._due_exit_code = 0
        self._exit_code: int | None = None
        self._oom_killed = False

    @property
    def volumes(self) -> tuple[str, ...]:
        """The names of its volumes."""
        named = tuple(mount.volume for mount in self.spec.mounts if mount.volume)
        return (*named, secrets_volume(self.spec)) if self.spec.secret_files else named

    def start(self, run: ProgramRun, now: float, taken: Collection[tuple[str, int]]) -> None:
        """Start its program, and give it its ports."""
        self._started_at, self._finished_at, self._exit_code, self._oom_killed = now, None, None, False
        self._written += [(now, chunk) for chunk in run.output]
        del self._written[:-MAX_CHUNKS]
        self._due = None if run.exit_code is None else now + run.seconds
        self._due_exit_code, self._frozen_at = run.exit_code or 0, None
        in_use, ports = {port for _, port in taken}, []
        for port in self.spec.ports:
            number = port.host_port or next(n for n in range(FIRST_ANY_PORT, 65_536) if n not in in_use)
            in_use.add(number)
            ports.append(replace(port, host_port=number))
        self.ports = tuple(ports)

    def end(self, exit_code: int, now: float, *, oom_killed: bool = False) -> None:
        """End its program, if it runs."""
        if self.is_up(now):
            self._finished_at, self._exit_code, self._oom_killed = now, exit_code, oom_killed

    def freeze(self, is_frozen: bool, now: float) -> None:
        """Pause its program or let it continue; its time stands still meanwhile."""
        if not is_frozen and self._frozen_at is not None and self._due is not None:
            self._due += now - self._frozen_at
        self._frozen_at = now if is_frozen else None

    def is_up(self, now: float) -> bool:
        """Tell whether it runs or is paused."""
        return self.state(now) in (ContainerState.RUNNING, ContainerState.PAUSED)

    def state(self, now: float) -> ContainerState:
        """Return its state; a program whose time is over has ended by itself."""
        if self._started_at is None:
            return ContainerState.CREATED
        if self._finished_at is None and self._frozen_at is None and self._due is not None and self._due <= now:
            self._finished_at, self._exit_code = self._due, self._due_exit_code
        if self._finished_at is not None:
            return ContainerState.EXITED
        return ContainerState.PAUSED if self._frozen_at is not None else ContainerState.RUNNING

    def output(self, tail: int | None, since: float | None) -> list[LogChunk]:
        """Return what it has written; of its last lines if `tail` says so."""
        chunks = [chunk for at, chunk in self._written if since is None or at >= int(since)]
        if tail is None:
            return chunks
        lines = [LogChunk(chunk.stream, line) for chunk in chunks for line in chunk.data.splitlines(keepends=True)]
        return lines[-tail:] if tail else []

    def listed(self, now: float) -> ContainerRecord:
        """Return what a listing shows of it."""
        state = self.state(now)
        return ContainerRecord(
            self.id,
            self.spec.name,
            self.spec.image,
            self.image_id,
            state,
            str(state),
            self.labels,
            {} if self.spec.network == NO_NETWORK or not self.is_up(now) else {self.spec.network: self._address()},
            self.ports if self.is_up(now) else (),
            self.volumes,
            self._exit_code if state is ContainerState.EXITED else None,
        )

    def record(self, now: float) -> ContainerRecord:
        """Return all of it."""
        return replace(
            self.listed(now),
            oom_killed=self._oom_killed,
            started_at=self._started_at,
            finished_at=self._finished_at,
        )

    def stats(self, now: float) -> ContainerStats:
        """Return what it uses."""
        seconds = now - (self._started_at or now)
        return ContainerStats(self.id, seconds * CPU_SHARE, SIMULATED_MEMORY_BYTES, 1 + self.commands)

    def _address(self) -> str:
        number = int(self.id[:8], 16)
        return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
