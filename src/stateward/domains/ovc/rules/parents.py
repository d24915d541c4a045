"""The rule of disabled parents: below them nothing is made, started or given more.

What stops, takes away or restores is still allowed: it keeps what is there, or makes it less. The parents' rows are
locked while a request is decided (its guard names them as its company), so none of them is disabled in between.
"""

from stateward.domains.ovc.denials import ParentNotReady
from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, AccountState, CloudspaceState
from stateward.domains.ovc.model import short
from stateward.domains.ovc.writing import known, ready
from stateward.engine import Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import CONTROLLER

C = CloudspaceState
IN_SERVICE = (C.DEPLOYED, C.PAUSING, C.PAUSED, C.RESUMING, C.RESETTING)
"""The states of a cloudspace that is not disabled; an administrator may just be at its firewall."""


def require_enabled(uow: UnitOfWork, request: Request, account: str, cloudspace: str = "") -> None:
    """Refuse a request below a parent that is disabled; the controller only gives back what there was."""
    if request.actor == CONTROLLER:
        return
    if cloudspace:
        found = known(uow, request.ns, cloudspace, CLOUDSPACE)
        if found.state not in IN_SERVICE:
            raise ParentNotReady(kind=short(found.kind), id=found.id, state=found.state, wanted=str(C.DEPLOYED))
    ready(uow, request.ns, account, ACCOUNT, AccountState.CONFIRMED)
