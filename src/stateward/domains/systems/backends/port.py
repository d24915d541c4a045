"""The port of backends: they start, list and stop the instances of services.

A backend knows nothing of deploys. It gets the instances to run one by one, restarts those that crash, and stops them
on request. Every call can be repeated: a name is started once, and stopping a stopped instance does nothing.

An instance may run once: when its process ends, it is `ended` with the exit status, and is listed until it is stopped.
It is never started again, whatever crashes when. Jobs use this; each run of a job is a service of its own here.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from stateward.domains.systems.definition import NodePool, PinnedImage, Service
from stateward.domains.systems.errors import NodePoolFull, NoRunningInstance, SecretMissing

ReadSecrets = Callable[[str, Collection[str]], Awaitable[Mapping[str, str]]]
"""Returns the present values of secrets of a namespace, by name; raises a `StatewardError` that says what is wrong.

A backend reads the values whenever it starts an instance, also after a crash, and stores them nowhere.
"""


ReportText = Callable[[str], Awaitable[None]]
"""Takes a line about what is being done."""


class SystemRef(Struct, frozen=True):
    """A reference to a system."""

    ns: str
    system: str


class ServiceRef(Struct, frozen=True):
    """A reference to a service of a system."""

    system: SystemRef
    path: str

    def __str__(self) -> str:
        return f"{self.system.system}{self.path}"

    @property
    def is_job_run(self) -> bool:
        """Whether it is a run of a job (see `job_run_ref`)."""
        return "@" in self.path


def job_run_ref(system_ref: SystemRef, path: str, run: str) -> ServiceRef:
    """Return the reference by which a backend knows a run of the job at a path; no service has such a path."""
    return ServiceRef(system_ref, f"{path}@{run}")


class InstancePhase(StrEnum):
    """The phase of an instance."""

    WAITING = "waiting"  # for other starts: only so many are under way at once
    STARTING = "starting"
    UP = "up"
    CRASHED = "crashed"  # restarted when its back-off is over
    STOPPING = "stopping"
    ENDED = "ended"  # it was to run once, and has
    UNKNOWN = "unknown"  # what runs it does not answer; it is as ready as when it was last seen


ENDED_PHASES = frozenset({InstancePhase.WAITING, InstancePhase.CRASHED, InstancePhase.ENDED})
"""The phases in which nothing of an instance runs."""


class ServiceInstance(Struct, frozen=True, omit_defaults=True):
    """An instance as last observed; `why` says what is wrong with it."""

    name: str
    revision: str
    phase: InstancePhase
    ready: bool = False
    restarts: int = 0
    since: float = 0.0
    pid: int | None = None
    port: int | None = None
    node: str | None = None
    why: str = ""
    exit_status: int | None = None  # of an ended one; None: unknown
    unlimited: tuple[str, ...] = ()  # the resources whose limits are not enforced
    host: str | None = None  # the address at which its port is reached; None: this host
    stop_s: float = 0.0  # the seconds that its end may take, if it is being stopped: its drain and its grace
    must_move: bool = False  # its node is being drained: another instance replaces it, as if it were an old revision
    no_room: str = ""  # if it must move: why no other node can take an instance like it

    @property
    def is_wanted(self) -> bool:
        """Whether it is not being stopped."""
        return self.phase is not InstancePhase.STOPPING

    def is_current(self, revision: str) -> bool:
        """Tell whether it has a revision, and may stay where it is."""
        return self.revision == revision and not self.must_move


class InstanceSpec(Struct, frozen=True):
    """An instance to start."""

    name: str
    revision: str
    service: Service
    run_once: bool = False


class LogExcerpt(Struct, frozen=True):
    """A part of an instance's log, and the offset of the next part; `why` says why it cannot be read at the moment."""

    instance: str
    text: str
    next: int
    why: str = ""


class CommandOutcome(Struct, frozen=True):
    """A command that was run in an instance; without an exit status, it did not end in time."""

    instance: str
    exit_status: int | None
    stdout: str
    stderr: str
    truncated: bool = False


class Backend(Protocol):
    """Runs the instances of services."""

    async def prepare(self, system_ref: SystemRef) -> Mapping[str, str]:
        """Prepare a system; returns its location, which the caller stores."""

    async def pin_images(
        self, system_ref: SystemRef, services: Mapping[str, Service], report: ReportText
    ) -> Mapping[str, PinnedImage]:
        """Return what the images of services of a system are now, by path, without those that are pinned already.

        `report` gets lines about the progress of pulls.
        """

    async def instances(self, ref: ServiceRef) -> Sequence[ServiceInstance]:
        """Return the instances of a service by name, those that are being stopped included."""

    async def start(self, ref: ServiceRef, want: InstanceSpec) -> None:
        """Start an instance, unless there is one of that name; raises `NodePoolFull`."""

    async def stop(self, ref: ServiceRef, name: str) -> None:
        """Stop an instance; it is listed until all its processes have ended."""

    async def address(self, ref: ServiceRef, port: int | None) -> int | None:
        """Open or close the shared port of a service; returns the port once it accepts connections."""

    async def address_problem(self, ref: ServiceRef, port: int | None) -> str:
        """Return why the shared port of a service accepts no connections; empty if it does, or none is needed."""

    def folder_problem(self, folder: str) -> str:
        """Return what the folder of a service must be; empty if instances can use it, or if only another host knows."""

    async def forget(self, ref: ServiceRef, *, keep_logs: bool = False) -> None:
        """Remove the files of a service whose instances have ended; `logs` still has what is kept."""

    async def ensure_pool(self, system_ref: SystemRef, name: str, pool: NodePool) -> None:
        """Create or resize a node pool; raises `NodePoolFull` if its instances would not fit."""

    async def remove_pool(self, system_ref: SystemRef, name: str) -> None:
        """Remove a node pool."""

    async def remove(self, system_ref: SystemRef) -> None:
        """Remove the files of a system whose services have ended."""

    async def logs(self, ref: ServiceRef, instance: str | None, after: int | None, most: int) -> Sequence[LogExcerpt]:
        """Return the logs of instances: the last `most` bytes, or those after an offset."""

    async def run_command(
        self, ref: ServiceRef, instance: str | None, argv: Sequence[str], timeout_s: float, max_output: int
    ) -> CommandOutcome:
        """Run a command in an instance, or in any that runs, to its end; raises `NoRunningInstance`."""

    async def servers(self, ref: ServiceRef) -> Mapping[str, str]:
        """Return the URL of the server that reaches an instance, by name; empty, or not named: this one."""

    async def pause(self, ref: ServiceRef, seconds: float) -> None:
        """Wait until a service has changed, at most so many seconds."""

    def changed_services(self) -> AsyncIterator[ServiceRef]:
        """Yield the services whose instances have changed, for ever; all services first."""

    def live(self) -> AbstractAsyncContextManager[None]:
        """Supervise the instances while the context is open."""


async def no_secrets(ns: str, names: Collection[str]) -> Mapping[str, str]:  # noqa: ARG001 - a `ReadSecrets`
    """Refuse to read secrets: there are none."""
    raise SecretMissing(min(names))


def choose_running(service: str, seen: Sequence[ServiceInstance], name: str | None) -> ServiceInstance:
    """Return the named instance, or a ready one if there is any; raises `NoRunningInstance`."""
    running = [instance for instance in seen if instance.phase not in ENDED_PHASES and name in (None, instance.name)]
    if not running:
        raise NoRunningInstance(service, name)
    return min(running, key=lambda instance: not instance.ready)


def node_names(name: str, pool: NodePool) -> list[str]:
    """Return the names of a pool's nodes."""
    return [f"{name}-{number}" for number in range(pool.nodes)]


def choose_node(name: str, pool: NodePool, used: Mapping[str, int]) -> str:
    """Return the node for one more instance; `used` says how many each node has."""
    best = min(node_names(name, pool), key=lambda node: used.get(node, 0))
    if used.get(best, 0) >= pool.slots:
        raise NodePoolFull(name, pool.nodes, pool.slots)
    return best


def check_fits(name: str, pool: NodePool, used: Mapping[str, int]) -> None:
    """Raise `NodePoolFull` if the running instances of a pool would not fit into this size; `used` has all nodes."""
    kept = set(node_names(name, pool))
    in_pool = ((node, count) for node, count in used.items() if node.rpartition("-")[0] == name)
    if any(count and (node not in kept or count > pool.slots) for node, count in in_pool):
        raise NodePoolFull(name, pool.nodes, pool.slots)
