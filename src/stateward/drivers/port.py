"""The drivers' port: the calls that every cloud and host must answer, and the records of the answers.

A driver serves one region of a provider, or one host. Calls are in bulk, and return as soon as the provider has
accepted; a listing shows the end state. Every machine and resource carries a key that our store holds *before* the
call: as the provider's client token if there is one, and always as a tag. So a create whose answer was lost is found
again, and not repeated.

A driver never raises for an answer of the provider. Each answer is an outcome. "No answer" is an outcome too,
`CallUnanswered`, and never counts as a yes or a no. A listing says whether it is complete; only then does absence mean
anything.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

Meter: TypeAlias = Callable[[str], None]
"""Callback that gets the name of every call to a provider, once per call."""


class ProviderRegion(Struct, frozen=True):
    """The region that a driver serves, the credential for it, and the driver's options.

    The credential is a reference (`env:PREFIX`, `file:PATH`), never the secret itself.
    """

    provider: str
    region: str
    zone: str = ""
    credential: str = ""
    options: Mapping[str, str] = {}


# --- capabilities ----------------------------------------------------------------------------------------------------


class Suspension(StrEnum):
    """How the provider suspends machines."""

    NATIVE = "native"
    BY_STOPPING = "by stopping"
    NONE = "not at all"


class Idempotency(StrEnum):
    """How the provider keeps a repeated create from making a second machine."""

    TOKEN = "client token"  # noqa: S105 - no secret
    NAME = "put by name"
    TAG = "a tag to look for"


class Capabilities(Struct, frozen=True):
    """What a provider can do, and the limits of its calls."""

    suspension: Suspension
    idempotency: Idempotency
    can_reboot: bool = True
    max_bulk: int = 1  # machines per call
    page_size: int = 1000  # machines per page of a listing
    listing_lag_s: float = 0.0  # maximum age of the data in a listing
    calls_a_second: float | None = None  # the provider's request budget, if it is known
    has_events: bool = False  # whether `watch` yields anything
    runs_commands: bool = False  # whether `run` works
    has_ssh: bool = True  # whether an SSH server answers where a listing shows an address and a port
    has_resources: bool = True  # whether the provider has networks, security groups and keys
    lists_reboot_tokens: bool = False  # whether a listing shows the tokens of finished reboots


# --- machines --------------------------------------------------------------------------------------------------------


class MachineState(StrEnum):
    """The normalised state of a machine; `Observation.native_state` keeps the provider's own."""

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    RESUMING = "resuming"
    REBOOTING = "rebooting"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FAILED = "failed"
    OTHER = "other"  # a native state that this driver does not know


class MachineAction(StrEnum):
    """An action on machines."""

    SUSPEND = "suspend"
    RESUME = "resume"
    REBOOT = "reboot"
    TERMINATE = "terminate"


class MachineSpec(Struct, frozen=True):
    """A machine to create: its key, name, size, image and resources."""

    key: str
    name: str
    spec: str
    image: str
    resources: Mapping[str, str] = {}  # ResourceKind -> the provider's id
    disk_gib: int | None = None
    user: str = ""
    tags: Mapping[str, str] = {}
    authorized_keys: Sequence[str] = ()  # public keys that may log in, besides the one of `resources`


class MachineHandle(Struct, frozen=True):
    """A reference to a machine that may exist: its key, and the provider's id if it is known.

    `token` is the idempotency token of one action: the same for every repetition, another for the next action.
    """

    key: str
    native_id: str | None = None
    token: str = ""


class Observation(Struct, frozen=True):
    """A machine as the provider lists it."""

    key: str
    native_id: str
    state: MachineState
    native_state: str
    name: str = ""
    public_ip: str = ""
    private_ip: str = ""
    ssh_port: int = 22  # 0: no SSH server, as in a machine without a network
    host_key: str = ""  # the public key of its SSH server, where the provider knows it
    details: Mapping[str, str] = {}
    reboot_tokens: tuple[str, ...] = ()  # of the latest actions, where the listing shows them
    unconfirmed_reboot: str = ""  # the token of a reboot that was started and not confirmed


class MachineListing(Struct, frozen=True):
    """A listing of machines. Only in a complete listing does a missing machine count as absent."""

    machines: Sequence[Observation]
    complete: bool
    problem: str = ""
    retry_after_s: float = 0.0  # if the provider throttles: how long to wait
    requested_at: float = 0.0  # by the caller's clock
    lag_s: float = 0.0  # the provider's `Capabilities.listing_lag_s` at that time

    @property
    def as_of(self) -> float:
        """The time, by the caller's clock, before which nothing in the listing can date from."""
        return self.requested_at - self.lag_s


# --- resources that machines use -------------------------------------------------------------------------------------


class ResourceKind(StrEnum):
    """A kind of resource that machines use."""

    NETWORK = "vNet"
    SUBNET = "subnet"
    SECURITY_GROUP = "securityGroup"
    SSH_KEY = "sshKey"


class CloudResource(Struct, frozen=True):
    """A resource to create, or one that exists; its key identifies it."""

    kind: ResourceKind
    key: str
    name: str
    within: str = ""  # the provider's id of its network
    facts: Mapping[str, str] = {}  # cidr, rules (JSON), public_key, ...
    native_id: str = ""


class ResourceListing(Struct, frozen=True):
    """A listing of resources. Only in a complete listing does a missing resource count as absent."""

    resources: Sequence[CloudResource]
    complete: bool
    problem: str = ""
    requested_at: float = 0.0  # by the caller's clock


# --- outcomes --------------------------------------------------------------------------------------------------------


class RefusalReason(StrEnum):
    """Why a provider refuses a call; a repetition would be refused again."""

    INVALID = "invalid"
    CONFLICT = "conflict"
    NOT_FOUND = "not found"
    CAPACITY = "capacity"
    QUOTA = "quota"
    AUTH = "auth"
    IN_USE = "in use"
    UNABLE = "the driver cannot"


class CallAccepted(Struct, frozen=True):
    """The provider has accepted; a listing shows the end state. A new private key is returned here only."""

    key: str
    native_id: str = ""
    secret: str = ""

    def __repr__(self) -> str:
        """Show everything but the secret: outcomes may be logged."""
        return f"CallAccepted(key={self.key!r}, native_id={self.native_id!r}, secret={'...' if self.secret else ''!r})"


class AlreadyDone(Struct, frozen=True):
    """An earlier call of ours has done it already."""

    key: str
    native_id: str = ""


class CallRefused(Struct, frozen=True):
    """The provider has refused the call."""

    key: str
    why: RefusalReason
    message: str

    @property
    def problem(self) -> str:
        """Why the call had no effect."""
        return f"{self.why}: {self.message}"


class CallThrottled(Struct, frozen=True):
    """The provider throttles; nothing was done."""

    key: str
    retry_after_s: float
    message: str = ""

    @property
    def problem(self) -> str:
        """Why the call had no effect."""
        return f"throttled: {self.message}" if self.message else "throttled"


class TransientFailure(Struct, frozen=True):
    """The call failed for now, and certainly nothing was done."""

    key: str
    message: str

    @property
    def problem(self) -> str:
        """Why the call had no effect."""
        return self.message or "it failed for now"


class CallUnanswered(Struct, frozen=True):
    """The call was sent and its result is unknown: observe by key before sending it again."""

    key: str
    message: str

    @property
    def problem(self) -> str:
        """Why nobody knows the effect of the call."""
        return f"no answer: {self.message}"


Outcome: TypeAlias = CallAccepted | AlreadyDone | CallRefused | CallThrottled | TransientFailure | CallUnanswered
Inconclusive: TypeAlias = CallThrottled | TransientFailure | CallUnanswered
"""An outcome that is neither a yes nor a no."""


class CommandFailed(OSError):
    """A command ended with an exit status other than 0; `written` is its output."""

    def __init__(self, status: int, written: str) -> None:
        super().__init__(f"exit status {status}")
        self.status, self.written = status, written


@runtime_checkable
class SpecRegistrar(Protocol):
    """A driver whose provider accepts any size and image once they are registered by name."""

    def register(self, spec: str, image: str) -> None:
        """Register a size and an image, unless they are known."""


@runtime_checkable
class MachineAdopter(Protocol):
    """A driver that can put our key on machines which others have created, and take it off again.

    A machine has one key at most. No provider but some compares and sets a mark in one step, so the caller observes
    by key afterwards: a mark that another server has replaced in the same moment is not shown.
    """

    async def list_unmarked(self) -> MachineListing:
        """List the machines here that carry no key and have not ended; the `key` of each is empty."""

    async def adopt(self, handle: MachineHandle) -> Outcome:
        """Put a key on the machine of a native id, which is needed here.

        `AlreadyDone` if it carries this key, CONFLICT if it carries another, NOT_FOUND if it has ended.
        """

    async def release(self, handle: MachineHandle) -> Outcome:
        """Take a key off the machine that carries it; `AlreadyDone` if none does. The machine stays as it is."""


class Driver(Protocol):
    """A region of a provider, or a host. Every method may be called concurrently."""

    @property
    def caps(self) -> Capabilities:
        """The capabilities of the provider."""

    async def check(self, spec: str, image: str) -> CallRefused | Inconclusive | None:
        """Return why a machine of this size and image cannot be created here; None if it can.

        The check has no side effect.
        """

    async def ensure(self, resource: CloudResource) -> Outcome:
        """Find a resource by its key, or create it."""

    async def remove(self, resource: CloudResource) -> Outcome:
        """Remove a resource; `AlreadyDone` if it does not exist."""

    async def list_resources(self) -> ResourceListing:
        """List all our resources here. On a failure the listing is incomplete; it never raises."""

    async def create(self, machine_specs: Sequence[MachineSpec]) -> Sequence[Outcome]:
        """Create machines; one outcome for each, in order. A known key creates nothing new."""

    async def act(self, action: MachineAction, handles: Sequence[MachineHandle]) -> Sequence[Outcome]:
        """Carry out an action on machines; one outcome for each, in order."""

    async def observe(self, keys: Collection[str] | None = None) -> MachineListing:
        """List all our machines here, or those with these keys. A failure makes it incomplete; it never raises."""

    async def run(self, handle: MachineHandle, command: str, user: str, seconds: float) -> str:
        """Run a command on a machine and return its output; raises `OSError` or `TimeoutError`.

        An exit status other than 0 raises `CommandFailed`.
        """

    def watch(self) -> AsyncIterator[str]:
        """Yield the keys of machines that may have changed. They are hints; the listing is the truth."""

    async def close(self) -> None:
        """Close the connections; the machines stay as they are."""
