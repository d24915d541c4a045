"""The rules of images: one that VMs stand on stays."""

from collections.abc import Iterable

from msgspec.structs import replace

from stateward.domains.ovc.denials import ImageInUse
from stateward.domains.ovc.lifecycle import ACCOUNT, IMAGE, AccountState
from stateward.domains.ovc.manners import heed
from stateward.domains.ovc.model import ImageSeen, ImageSpec, Stay, image_seen, new_spec, spec_of, text
from stateward.domains.ovc.nodes import Vault
from stateward.domains.ovc.rules.parents import require_enabled
from stateward.domains.ovc.rules.vm import args_of, refuse_below_bin
from stateward.domains.ovc.writing import known, put_seen, ready, refuse_taken
from stateward.engine import Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.lifecycle import CONTROLLER
from stateward.store.records import Key, Object

ACCOUNT_ACTIONS = ("define", "create", "enable", "restore")
"""What is decided by the state of the image's account too."""


def company_of_image(request: Request, found: Object | None) -> Iterable[Key]:
    """Return the account that a request about an image looks at."""
    parent = request.creates.parent if request.creates is not None else None if found is None else found.parent
    return [Key(request.ns, parent)] if parent and request.action in ACCOUNT_ACTIONS else ()


async def guard_image(vault: Vault, uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    """Check a request about an image, whose file has to be in the vault's library."""
    found = heed(uow, request, found)
    seen = image_seen(found)
    match request.action:
        case "define":
            spec = new_spec(request.spec, ImageSpec)
            if found.parent != spec.account or found.queue != found.id:
                raise BadInput("parent", found.parent, f"the image's account, {spec.account}")
            ready(uow, request.ns, spec.account, ACCOUNT, AccountState.CONFIRMED)
            await refuse_taken(uow, request.ns, IMAGE, spec.name, parent=spec.account)
            _check_source(vault, spec.source)
            return replace(request, seen=text(ImageSeen(scoped=True)))
        case "create" | "enable":
            require_enabled(uow, request, found.parent or "")
            if request.action == "create":
                _check_source(vault, spec_of(found, ImageSpec).source)
        case "destroy" if seen.users:
            raise ImageInUse(id=found.id, users=seen.users)
        case "delete":
            along = str(args_of(request).get("along", "")) if request.actor == CONTROLLER else ""
            put_seen(uow, found, replace(seen, bin=Stay(uow.now, along)))
        case "restore" if request.actor != CONTROLLER:
            refuse_below_bin(known(uow, request.ns, found.parent or "", ACCOUNT))
    return None


def _check_source(vault: Vault, source: str) -> None:
    trouble = vault.image_trouble(source)
    if trouble:
        raise BadInput("source", source, f"there: {trouble}")
