"""The drivers' port: what is asked of every cloud and host, and the words in which it answers.

A driver is bound to one place: a provider's region, or a host. It is asked in bulk, and it answers as soon as the
provider has accepted, never waiting for the end state: that is seen in a listing. Whatever is made carries a key that
our store holds *before* the call, as the provider's client token where there is one and always as a tag, so that a
create whose answer was lost is found again and not repeated.

Nothing here raises for what a provider says. An answer is an outcome, and "no answer" is one too (`Unanswered`): it is
never taken for a yes or a no. A listing says whether it is complete; only then does absence mean anything.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

Meter: TypeAlias = Callable[[str], None]
"""Is told the name of every call that goes out to a provider, one for one."""


class ProviderRegion(Struct, frozen=True):
    """Where a driver works: the provider's region, by what credential, and what else the driver needs to know.

    The credential is a reference (`env:NAME`, `file:PATH`), never the secret itself.
    """

    provider: str
    region: str
    zone: str = ""
    credential: str = ""
    options: Mapping[str, str] = {}


# --- what a driver can do --------------------------------------------------------------------------------------------


class Suspension(StrEnum):
    """How machines are suspended there."""

    NATIVE = "native"
    BY_STOPPING = "by stopping"
    NONE = "not at all"


class Idempotency(StrEnum):
    """What keeps a repeated create from making a second machine there."""

    TOKEN = "client token"  # noqa: S105 - no secret
    NAME = "put by name"
    TAG = "a tag to look for"


class Capabilities(Struct, frozen=True):
    """What a provider can do, and in what portions."""

    suspension: Suspension
    idempotency: Idempotency
    can_reboot: bool = True
    max_bulk: int = 1  # how many machines one call may name
    page_size: int = 1000  # how many machines one page of a listing holds
    listing_lag_s: float = 0.0  # how many seconds old what a listing shows may be
    calls_a_second: float | None = None  # the provider's own budget, if it tells one
    has_events: bool = False  # whether `watch` yields anything
    runs_commands: bool = False  # whether `run` works
    has_resources: bool = True  # whether networks, security groups and keys are something there
    lists_reboot_tokens: bool = False  # whether a listing shows which reboots were done, by their tokens


# --- machines --------------------------------------------------------------------------------------------------------


class MachineState(StrEnum):
    """What a machine is, in words that all providers share; the provider's own word is kept beside it."""

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    RESUMING = "resuming"
    REBOOTING = "rebooting"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FAILED = "failed"
    OTHER = "other"  # a word that this driver does not know


class MachineAction(StrEnum):
    """What can be done to machines."""

    SUSPEND = "suspend"
    RESUME = "resume"
    REBOOT = "reboot"
    TERMINATE = "terminate"


class MachineSpec(Struct, frozen=True):
    """A machine that is to be: its key, its name, of what size and from what image, and among which parts."""

    key: str
    name: str
    spec: str
    image: str
    resources: Mapping[str, str] = {}  # PartKind -> the provider's id of it
    disk_gib: int | None = None
    user: str = ""
    tags: Mapping[str, str] = {}


class MachineHandle(Struct, frozen=True):
    """A machine that may be there: by its key, and by the provider's own id if that is known.

    `token` is one and the same however often one deed is repeated, and another one for the next deed.
    """

    key: str
    native_id: str | None = None
    token: str = ""


class Observation(Struct, frozen=True):
    """A machine as the provider shows it."""

    key: str
    native_id: str
    state: MachineState
    native_state: str
    name: str = ""
    public_ip: str = ""
    private_ip: str = ""
    ssh_port: int = 22  # 0: nothing listens there, as in a machine without a network
    details: Mapping[str, str] = {}
    reboot_tokens: tuple[
        str, ...
    ] = ()  # of the latest deeds that it has taken; of reboots, where the listing shows them
    unconfirmed_reboot: str = ""  # the token of a reboot that was begun, and of which nobody knows whether it was done


class MachineListing(Struct, frozen=True):
    """What a look has shown. Only where it is complete does a machine that is not in it count as absent."""

    machines: Sequence[Observation]
    complete: bool
    problem: str = ""
    retry_after_s: float = 0.0  # for how many seconds the provider wants to be left alone
    requested_at: float = (
        0.0  # when it was asked for, by the clock of who did: `Capabilities.lag` counts from then back
    )


# --- parts: what machines stand on -----------------------------------------------------------------------------------


class ResourceKind(StrEnum):
    """What machines stand on."""

    NETWORK = "vNet"
    SUBNET = "subnet"
    SECURITY_GROUP = "securityGroup"
    SSH_KEY = "sshKey"


class CloudResource(Struct, frozen=True):
    """A part that is to be, or is: found by its key."""

    kind: ResourceKind
    key: str
    name: str
    within: str = ""  # the provider's id of the network that it belongs to
    facts: Mapping[str, str] = {}  # cidr, rules (JSON), public_key, ...
    native_id: str = ""


class ResourceListing(Struct, frozen=True):
    """The parts that a look has shown. Only where it is complete does a part that is not in it count as absent."""

    resources: Sequence[CloudResource]
    complete: bool
    problem: str = ""


# --- answers ---------------------------------------------------------------------------------------------------------


class RefusalReason(StrEnum):
    """Why a provider refuses; it will refuse again."""

    INVALID = "invalid"
    CONFLICT = "conflict"
    NOT_FOUND = "not found"
    CAPACITY = "capacity"
    QUOTA = "quota"
    AUTH = "auth"
    IN_USE = "in use"
    UNABLE = "the driver cannot"


class CallAccepted(Struct, frozen=True):
    """The provider has accepted; the end is seen in a listing. A new secret (a private key) is told here only."""

    key: str
    native_id: str = ""
    secret: str = ""

    def __repr__(self) -> str:
        """Show everything but the secret: outcomes may be logged."""
        return f"CallAccepted(key={self.key!r}, native_id={self.native_id!r}, secret={'...' if self.secret else ''!r})"


class AlreadyDone(Struct, frozen=True):
    """It is so already, by an earlier call of ours."""

    key: str
    native_id: str = ""


class CallRefused(Struct, frozen=True):
    """The provider says no."""

    key: str
    why: RefusalReason
    message: str


class CallThrottled(Struct, frozen=True):
    """The provider wants to be left alone for a while; nothing was done."""

    key: str
    retry_after_s: float
    message: str = ""


class TransientFailure(Struct, frozen=True):
    """It did not work now, and certainly nothing was done."""

    key: str
    message: str


class CallUnanswered(Struct, frozen=True):
    """It was sent, and nobody knows what became of it: look by key before sending it again."""

    key: str
    message: str


Outcome: TypeAlias = CallAccepted | AlreadyDone | CallRefused | CallThrottled | TransientFailure | CallUnanswered
Inconclusive: TypeAlias = CallThrottled | TransientFailure | CallUnanswered
"""What is said where nobody can say yes or no."""


class CommandFailed(OSError):
    """A command ended with another status than 0; `written` is what it wrote until then."""

    def __init__(self, status: int, written: str) -> None:
        super().__init__(f"exit status {status}")
        self.status, self.written = status, written


@runtime_checkable
class SpecRegistrar(Protocol):
    """A driver whose provider takes any size and image that is registered by name."""

    def register(self, spec: str, image: str) -> None:
        """Take a size and an image, if they are not known."""


class Driver(Protocol):
    """A provider's region, or a host. Every method may be called concurrently."""

    @property
    def caps(self) -> Capabilities:
        """What can be done there."""

    async def check(self, spec: str, image: str) -> CallRefused | Inconclusive | None:
        """Say why a machine of this size from this image cannot be made here, or why that cannot be said now.

        It has no side effect.
        """

    async def ensure(self, resource: CloudResource) -> Outcome:
        """Find a part by its key, or make it."""

    async def remove(self, resource: CloudResource) -> Outcome:
        """Remove a part; one that is not there is `Already` gone."""

    async def list_resources(self) -> ResourceListing:
        """List all parts of ours here. Trouble makes it incomplete; it never raises."""

    async def create(self, machine_specs: Sequence[MachineSpec]) -> Sequence[Outcome]:
        """Make machines; one outcome for each, in order. A key that is known makes nothing new."""

    async def act(self, action: MachineAction, handles: Sequence[MachineHandle]) -> Sequence[Outcome]:
        """Do something to machines; one outcome for each, in order."""

    async def observe(self, keys: Collection[str] | None = None) -> MachineListing:
        """List all machines of ours here, or those with these keys. Trouble makes it incomplete; it never raises."""

    async def run(self, handle: MachineHandle, command: str, user: str, seconds: float) -> str:
        """Run a command on a machine and return what it wrote; raises `OSError` or `TimeoutError`.

        A command that ends with another status than 0 has failed: that is a `CommandFailed`.
        """

    def watch(self) -> AsyncIterator[str]:
        """Yield the keys of machines that may have changed: hints, the listing is the truth."""

    async def close(self) -> None:
        """Let go of connections; the machines stay as they are."""
