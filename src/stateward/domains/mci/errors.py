"""Errors of the mci domain: requests that it refuses, and why."""

from stateward.engine import Denied, NotFound


class VmsAdded(Denied):
    """The MCI got new VMs after the request had read it."""

    code = "meanwhile"
    retry = True

    def __init__(self, mci: str) -> None:
        super().__init__(mci)
        self.mci = mci

    def __str__(self) -> str:
        return f"MCI {self.mci!r} has got VMs meanwhile"


class VmsAlive(Denied):
    """VMs of the MCI run, or may run, at their providers."""

    code = "still_alive"

    def __init__(self, mci: str, alive: dict[str, str]) -> None:
        super().__init__(mci, alive)
        self.mci, self.alive = mci, alive

    def __str__(self) -> str:
        some = ", ".join(f"{name} is {state}" for name, state in list(self.alive.items())[:5])
        more = f" and {len(self.alive) - 5} more" if len(self.alive) > 5 else ""
        return (
            f"MCI {self.mci!r} has VMs that are not terminated: {some}{more}; terminate them first (option=terminate)"
        )


class NotGranted(Denied):
    """A namespace requests something at a connection without a grant."""

    code = "forbidden"

    def __init__(self, connection: str, ns: str, *, enabled: bool = True) -> None:
        super().__init__(connection, ns)
        self.connection, self.ns, self.enabled = connection, ns, enabled

    def __str__(self) -> str:
        if not self.enabled:
            return f"connection {self.connection!r} is turned off or removed: nothing is made there"
        return (
            f"connection {self.connection!r} is not granted to namespace {self.ns!r}; an administrator of the"
            f" deployment can grant it: stateward mci connection grant {self.connection} {self.ns}"
        )


class InUse(Denied):
    """The object is in use."""

    code = "in_use"

    def __init__(self, what: str, by: list[str]) -> None:
        super().__init__(what, by)
        self.what, self.by = what, by

    def __str__(self) -> str:
        return f"{self.what} is in use by {', '.join(self.by[:5])}{' and others' if len(self.by) > 5 else ''}"


class NoNamespace(NotFound):
    """The namespace does not exist."""

    def __str__(self) -> str:
        return f"there is no namespace {self.object!r}"


class NotDone(Denied):
    """An operation failed; the object stays as it is shown."""

    code = "not_done"
    retry = True

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what, why)
        self.what, self.why = what, why

    def __str__(self) -> str:
        return f"{self.what} could not be done: {self.why}"
