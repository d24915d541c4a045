"""The ports of an agent: its site, where it creates, updates, deletes and observes things, and its lease."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from stateward.agents.messages import AgentOrder, CommandRequest, Existing, LogPart, LogRequest
from stateward.agents.published_ports import PublishedAddress
from stateward.errors import StatewardError


class SiteError(StatewardError):
    """The site could not execute an order, or could not be observed."""

    why: str
    text = "{why}"


class ReportProgress(Protocol):
    """Receives lines of progress."""

    def __call__(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Report a line of progress."""


class SiteCapacity(Struct, frozen=True):
    """What a site has: processor cores, and bytes of memory; 0 is unknown.

    A node has `slots` for instances, which other hosts reach at its address.
    """

    cores: float = 0.0
    memory: int = 0
    slots: int = 0
    address: str = ""


UNKNOWN_CAPACITY = SiteCapacity()


class NodeMeasure(Struct, frozen=True):
    """The measures of a host that a thing consists of: processor cores used and bytes of memory (None: not known)."""

    key: str
    is_up: bool = True
    cpu: float | None = None
    memory: int | None = None


class Health(Struct, frozen=True):
    """The health of a thing (None: unknown), why it is bad, and the results in a row that contradict it."""

    is_healthy: bool | None = None
    reason: str = ""
    contrary: int = 0


class InstanceMeasure(Struct, frozen=True):
    """The measures of an instance: cores used, bytes of memory, established connections to it (None: not known).

    `requests` is the number of connections to it that were new at a measurement, in all since the site was opened. It
    never falls, except when the site is opened anew. `health` is the verdict of its probe, if it has one.
    """

    cpu: float | None = None
    memory: int | None = None
    connections: int | None = None
    requests: int = 0
    nodes: tuple[NodeMeasure, ...] = ()
    health: Health | None = None


class SiteCommandResult(Struct, frozen=True):
    """The end of a command: its exit status, the last of its output, and how many bytes came before that.

    Without a status, it did not end in time. A site that knows what went to standard error tells it in `errors`, and in
    `is_cut` whether there was more output than it keeps.
    """

    status: int | None
    written: str
    omitted: int = 0
    errors: str = ""
    is_cut: bool = False


class AgentSite(Protocol):
    """The place where an agent works. Every order may be interrupted at any point, and requested again."""

    async def observe(self) -> Mapping[str, Existing]:
        """Return what exists, by name; raises `SiteError` if the site cannot be observed."""

    async def execute(self, order: AgentOrder, report_progress: ReportProgress) -> None:
        """Create, update or delete a thing; raises `SiteError` if that fails."""

    def ports_of(self, name: str) -> tuple[PublishedAddress, ...]:  # noqa: ARG002 - most sites publish none
        """Return the published ports of a thing, as of its last order or observation."""
        return ()

    async def measure(self) -> Mapping[str, InstanceMeasure]:
        """Return the measures of what exists, by name; raises `SiteError` if nothing can be measured."""
        return {}

    async def read_log(self, request: LogRequest) -> Sequence[LogPart]:
        """Return what the parts of an instance have written; raises `SiteError` if it cannot be read."""
        raise SiteError(f"{request.name} has no log")

    async def run_command(self, request: CommandRequest) -> SiteCommandResult:
        """Run a command in an instance; when this is cancelled, the command ends. Raises `SiteError`."""
        raise SiteError(f"no command can run in {request.name}")

    async def close(self) -> None:
        """Release resources; what exists stays as it is."""


class AgentLease(Protocol):
    """The right of an agent to run things, as long as a controller answers its heartbeats."""

    async def settle(self) -> bool:
        """Stop everything that runs, if the lease has ended; returns whether it has. An inventory comes after it."""

    def begin(self, seconds: float) -> None:
        """Note the length of the lease, at the start of a connection; heartbeats of former ones no longer count."""

    def note_heartbeat(self) -> int:
        """Note that a heartbeat is about to be sent; returns its number."""

    def renew(self, number: int) -> None:
        """Renew the lease: it ends its length after the heartbeat of this number was sent."""


class ThingStatus(Struct, frozen=True):
    """The state of a thing, as JSON."""

    name: str
    generation: int
    status: str
