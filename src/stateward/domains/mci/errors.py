"""Errors of the mci domain: requests that it refuses, and why."""

from stateward.engine import Denied, NotFound


class VmsAdded(Denied, code="meanwhile", retry=True):
    """The MCI got new VMs after the request had read it."""

    mci: str
    text = "MCI {mci!r} has VMs in the meantime"


class VmsAlive(Denied, code="still_alive"):
    """VMs of the MCI run, or may run, at their providers."""

    mci: str
    alive: dict[str, str]

    def __str__(self) -> str:
        some = ", ".join(f"{name} is {state}" for name, state in list(self.alive.items())[:5])
        more = f" and {len(self.alive) - 5} more" if len(self.alive) > 5 else ""
        return (
            f"MCI {self.mci!r} has VMs that are not terminated: {some}{more}; terminate them first (option=terminate)"
        )


class NotGranted(Denied, code="forbidden"):
    """A namespace requests something at a connection without a grant."""

    connection: str
    ns: str
    enabled: bool = True

    def __str__(self) -> str:
        if not self.enabled:
            return f"connection {self.connection!r} is turned off or removed: nothing is made there"
        return (
            f"connection {self.connection!r} is not granted to namespace {self.ns!r}; an administrator of the"
            f" deployment can grant it: stateward mci connection grant {self.connection} {self.ns}"
        )


class NotAdopting(Denied, code="forbidden"):
    """A namespace may not adopt machines at a connection."""

    connection: str
    ns: str
    text = (
        "namespace {ns!r} may not adopt machines at connection {connection!r}; an administrator of the deployment names"
        " the namespaces that may in an option of the connection: adopt={ns}"
    )


class NamespaceForbidden(Denied, code="forbidden"):
    """A request names a namespace for which its token is not."""

    ns: str
    text = "the token of this request is not for namespace {ns!r}"


class MachineHeld(Denied, code="machine_held"):
    """A machine has a VM already, or carries the key of another server."""

    machine: str
    holder: str
    text = "machine {machine!r} is not adopted: {holder}"


class InUse(Denied, code="in_use"):
    """The object is in use."""

    what: str
    by: list[str]

    def __str__(self) -> str:
        return f"{self.what} is in use by {', '.join(self.by[:5])}{' and others' if len(self.by) > 5 else ''}"


class ConnectionMoved(Denied, code="connection_moved", retry=True):
    """A connection leads elsewhere since the request was prepared."""

    connection: str
    lane: str
    text = "connection {connection!r} does not lead to {lane} any more"


class NoNamespace(NotFound):
    """The namespace does not exist."""

    text = "there is no namespace {object!r}; create it: stateward mci namespace create {object}"


class InvalidNamespace(NotFound):
    """The namespace does not exist, and cannot be created under this name."""

    text = "there is no namespace {object!r}, and none can have this name"


class NoStoredObject(NotFound):
    """Nothing is stored under a key, or nothing that the caller may see."""

    text = "there is no object with the key {object!r}"


class NoSuchUid(NotFound):
    """No object has this uid, or none that the caller may see."""

    text = "there is no object with the uid {object!r} in the namespaces of the token"


class NoSuchRequest(NotFound):
    """No request had this id, or none that the caller may see; requests that change nothing are soon forgotten."""

    text = "no request with the id {object!r} is known"


class NotByKey(Denied, code="not_by_key"):
    """An object is to be deleted by its key in the store."""

    key: str
    text = (
        "{key!r} is not deleted by its key: its machines would stay at their providers; delete the object by the"
        " DELETE of its own path, such as /ns/default/mci/m1"
    )


class SharedRules(Denied, code="shared_rules"):
    """The rules of a group are to be changed that many MCIs share, with the access that its name tells."""

    group: str
    text = (
        "the rules of security group {group!r} cannot be changed: all MCIs with the same accessFrom share it, also"
        " later ones; create another securityGroup and name it for the VMs (securityGroupIds)"
    )


class NotDone(Denied, code="not_done", retry=True):
    """An operation failed; the object stays as it is shown."""

    what: str
    why: str
    text = "{what} could not be done: {why}"


class NoTargets(Denied, code="no_targets"):
    """No VM of an MCI can run a command."""

    mci: str
    text = "MCI {mci!r} has no running VM that the request selects"


class NoAccessSecret(Denied, code="no_access_secret"):
    """The server has no key of its own for VMs."""

    why: str
    text = (
        "the server cannot log in to VMs: {why}; give all processes the same file of at least 32 random bytes, readable"
        " by its owner only (setting mci_access_secret)"
    )
