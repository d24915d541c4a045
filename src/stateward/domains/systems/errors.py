"""The errors of the systems domain."""

from stateward.domains.systems.lifecycle import LIVING, SystemState
from stateward.engine import Denied
from stateward.errors import StatewardError


class LockMissing(Denied, code="unlocked"):
    """A change of a system was requested without its lock."""

    system: str
    action: str
    text = (
        "{action!r} of system {system} needs its lock: use the button on the page of the system, the command"
        " stateward system {action} {system}, or the routes below /api/v1/systems"
    )


class NotLiving(Denied):
    """The system cannot be changed in its present state."""

    code = "not_living"

    def __init__(self, system: str, state: str) -> None:
        super().__init__(system, state)
        self.system, self.state = system, state
        self.retry = state == SystemState.PENDING

    def __str__(self) -> str:
        return f"system {self.system} is {self.state}, and can be changed only while it is {', '.join(LIVING)}"


class LocalBackendNotGranted(Denied, code="forbidden"):
    """A namespace without the grant asks for programs on the server's host."""

    ns: str
    text = (
        "namespace {ns!r} may not use the backend 'local', which runs programs on the server's own host; an"
        " administrator of the deployment can grant it by the setting systems_local_namespaces"
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


class NodePoolFull(StatewardError, retry=True):
    """No node of a pool has room for one more instance."""

    pool: str
    nodes: int
    slots: int
    text = "node pool {pool} is full: {nodes} nodes with {slots} slots each"


class OnOtherHost(StatewardError, retry=True):
    """The instances of the system run on another host."""

    system: str
    host: str
    text = "system {system} lives on {host}, and this is another machine"
