"""Standing: what lives at a connection. Without the connection nobody could look at it any more, nor end it."""

from stateward.domains.mci.catalogue import Catalogue, objects
from stateward.domains.mci.lifecycle import VM, VmState
from stateward.domains.mci.model import Connection
from stateward.domains.mci.parts import KINDS, where_of
from stateward.engine import Denied
from stateward.store.filters import Selector
from stateward.store.port import Reader


class InUse(Denied):
    """Something still stands on it."""

    code = "in_use"

    def __init__(self, what: str, by: list[str]) -> None:
        super().__init__(what, by)
        self.what, self.by = what, by

    def __str__(self) -> str:
        return f"{self.what} is in use by {', '.join(self.by[:5])}{' and others' if len(self.by) > 5 else ''}"


async def guard_connection(catalogue: Catalogue, reader: Reader, name: str, becomes: Connection | None) -> None:
    """Refuse to take a connection away from what stands at it."""
    was = next((one for one in await catalogue.all_connections() if one.name == name), None)
    if was is not None and leads_elsewhere(was, becomes):
        users = await standing_at(reader, name)
        if users:
            raise InUse(f"connection {name!r}", users)


def leads_elsewhere(was: Connection, becomes: Connection | None) -> bool:
    """Tell whether what stands at a connection would not be found any more after a change of it."""
    return becomes is None or (was.lane, was.driver) != (becomes.lane, becomes.driver)


async def standing_at(reader: Reader, connection: str) -> list[str]:
    """Return what stands at a connection, in all namespaces: VMs that are not terminated, networks, groups, keys."""
    found: list[str] = []
    for ns in await reader.namespaces():
        vms = objects(reader, Selector(ns, VM.kind, labels=(("connection", connection),)))
        found += [f"{ns}/{one.id}" async for one in vms if one.state != VmState.TERMINATED]
        for lifecycle in KINDS.values():
            parts = objects(reader, Selector(ns, lifecycle.kind))
            found += [f"{ns}/{one.id}" async for one in parts if where_of(one).connection == connection]
    return found
