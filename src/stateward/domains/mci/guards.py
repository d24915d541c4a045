"""What holds at the moment of acceptance, inside the transaction: an MCI is not deleted while a VM of it lives."""

from stateward.domains.mci.lifecycle import FORGET, TERMINATE_FIRST, VM, VmState
from stateward.engine import Denied, Request
from stateward.engine.desk import Desk
from stateward.store.records import Object
from stateward.store.selection import Selector

SETTLED = (VmState.TERMINATED, VmState.FAILED)


class StillAlive(Denied):
    """VMs of the MCI live, or may live, at their providers."""

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


async def guard_mci(desk: Desk, request: Request, found: Object) -> None:
    """Refuse to delete an MCI whose VMs are not all gone, unless they are to be terminated or forgotten."""
    if request.action != "delete" or request.facts & {FORGET, TERMINATE_FIRST}:
        return
    vms = await desk.tx.select(Selector(found.ns, VM.kind, found.id))
    alive = {one.id: one.state for one in vms if one.state not in SETTLED}
    if alive:
        raise StillAlive(found.id, alive)
