"""The errors of the systems domain."""

from typing import ClassVar

from stateward.domains.systems.lifecycle import LIVING, SystemState
from stateward.engine import Denied, Locked
from stateward.errors import StatewardError


class LockMissing(Denied, code="unlocked"):
    """A change of a system was requested without its lock."""

    system: str
    action: str
    text = (
        "{action!r} of system {system} needs its lock: use the button on the page of the system, the command"
        " stateward system {action} {system}, or the routes below /api/v1/systems"
    )


class LockHeld(Denied, code="lock_held"):
    """The time for which a change can wait for its lock is over, and it has the lock."""

    change: str
    text = "{change} has its lock, and no longer waits for it"


class DeletionLocked(Locked):
    """A deploy or a teardown is in the way of a deletion."""

    def __str__(self) -> str:
        return f"{super().__str__()}; a deletion by force (--force) cancels the deploys, and waits for them"


class NotLiving(Denied):
    """The system cannot be changed in its present state."""

    code = "not_living"

    def __init__(self, system: str, state: str) -> None:
        super().__init__(system, state)
        self.system, self.state = system, state
        self.retry = state == SystemState.PENDING

    def __str__(self) -> str:
        return f"system {self.system} is {self.state}, and can be changed only while it is {', '.join(LIVING)}"


class BackendNotGranted(Denied, code="forbidden"):
    """A namespace without the grant asks for programs or containers on a host of the deployment."""

    ns: str
    backend: str
    text = (
        "namespace {ns!r} may not use the backend {backend!r}, which runs programs on a host of the deployment; an"
        " administrator of the deployment can grant it by the setting systems_{backend}_namespaces"
    )


class NetworksOpen(StatewardError):
    """An engine that cannot keep networks isolated is to run containers of several namespaces."""

    ns: str
    text = (
        "containers of namespace {ns!r} could be reached by those of other namespaces: this engine does not keep"
        " networks isolated (see the log of the server); set systems_container_open_networks to accept that"
    )


class LoginNotGranted(Denied, code="forbidden"):
    """A definition names a credential of the deployment that its namespace may not use."""

    ns: str
    field: str
    reference: str
    text = (
        "{field}: namespace {ns!r} may not use the credential {reference!r}; an administrator of the deployment can"
        " grant it by the setting systems_registry_logins={ns}={reference}"
    )


class NothingToRollBack(Denied, code="nothing_to_roll_back"):
    """No deploy of the path has succeeded."""

    system: str
    path: str | None

    def __str__(self) -> str:
        where = "" if self.path is None else f" of {self.path}"
        return f"no deploy{where} in system {self.system} has succeeded that could be rolled back"


class ServiceBusy(Denied, code="busy", retry=True):
    """Another operation is at work on a service or a node pool."""

    object: str
    op: str
    text = "operation {op} is at work on {object}"


class JobBeingDeleted(Denied, code="job_being_deleted"):
    """A run was requested of a job that is being deleted."""

    job: str
    text = "job {job} is being deleted"


class TimeZoneUnreadable(Denied, code="time_zone_unreadable", retry=True):
    """This host cannot read the time zone of a schedule, at least not at the moment; another host may be able to."""

    time_zone: str
    why: str
    text = "time zone {time_zone} cannot be read on this host: {why}"
    after: ClassVar[float] = 10.0
    """How many seconds the timer of a schedule waits before it is tried again."""


class NoRunningInstance(Denied, code="no_running_instance", retry=True):
    """There is no instance to run a command in."""

    service: str
    instance: str | None

    def __str__(self) -> str:
        which = "no instance" if self.instance is None else f"no instance {self.instance}"
        return f"service {self.service} has {which} that runs"


class BackendUnavailable(Denied, code="backend_unavailable", retry=True):
    """The backend of a system cannot be asked at the moment."""

    system: str
    why: str
    text = "the backend of system {system} cannot be asked: {why}"


class NodePoolFull(StatewardError, retry=True):
    """No node of a pool has room for one more instance."""

    pool: str
    nodes: int
    slots: int
    text = "node pool {pool} is full: {nodes} nodes with {slots} slots each"


class NodesFull(StatewardError, retry=True):
    """No node has room for one more instance."""

    asked: str
    free: str
    text = "no node has room: asked is {asked}; {free}"


class NodeCannotAnswer(Denied, code="agent_refused"):
    """The agent of a node has refused a request for logs or a command, or has not answered it."""

    node: str
    why: str
    text = "the agent of node {node}: {why}"


class InstanceNotReached(Denied, code="agent_refused", retry=True):
    """The server that reaches an instance has refused a request, or has not answered it."""

    instance: str
    why: str
    text = "instance {instance}: {why}"


class ImagesNotFound(StatewardError, retry=True):
    """No node could be asked what the images of services are."""

    why: str
    text = "the images cannot be looked for: {why}"


class NoContainerEngine(StatewardError):
    """No node of a namespace can run containers."""

    ns: str
    text = "no node in {ns} has a container engine: start an agent with stateward system node agent --container-engine"


class ImageRefused(StatewardError):
    """The container engine of a node has refused an image."""

    node: str
    why: str
    text = "node {node}: {why}"


class NodeNotEmpty(Denied, code="not_empty"):
    """A node with instances cannot be deleted."""

    node: str
    instances: int
    text = "node {node} has {instances} instances; drain it first: stateward system node drain {node}"


class OnOtherHost(StatewardError, retry=True):
    """The instances of the system run on another host."""

    system: str
    host: str
    text = "system {system} lives on {host}, and this is another machine"


class NoSecretsKey(Denied, code="no_secrets_key"):
    """The deployment has no key for the values of secrets."""

    why: str
    text = (
        "secrets cannot be encrypted or decrypted: {why}; give all processes the same file with a key of 64 hexadecimal"
        " digits on each line, readable by its owner only (setting systems_secrets_key_file), or the same keys in the"
        " environment (STATEWARD_SYSTEMS_SECRETS_KEYS); a key is made by openssl rand -hex 32"
    )


class SecretUnreadable(StatewardError, code="secret_unreadable"):
    """The stored value of a secret cannot be decrypted."""

    secret: str
    why: str
    text = "secret {secret} cannot be decrypted: {why}"


class SecretMissing(Denied, code="secret_missing"):
    """An instance needs a secret that does not exist."""

    secret: str
    text = "there is no secret {secret}; create it with stateward system secret create {secret}"


class SecretInUse(Denied, code="secret_in_use"):
    """Services, jobs, open runs or open deploys need a secret that is to be deleted."""

    secret: str
    users: tuple[str, ...]
    text = "secret {secret} is used by {users}; deploy a definition without it, and wait for open deploys and runs"


class ValueNotSealed(Denied, code="secret_not_sealed"):
    """A secret was to be set without its encrypted value: the general API never takes values of secrets."""

    secret: str
    text = (
        "the value of secret {secret} is set by stateward system secret, or by the routes below"
        " /api/v1/systems/NAMESPACE/-/secrets, and in no other way"
    )
