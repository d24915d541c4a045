"""Routes that all kinds have: list, get, delete, and the plain actions of their tables."""

from collections.abc import Sequence
from typing import Annotated, Any

from litestar import delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter
from msgspec import Struct

from stateward.access import Right
from stateward.domains.ovc.api.schemas import ActionName, Call, ExpectedStatus, ItemId, Permanently, caller_of
from stateward.domains.ovc.api.views import ItemView, OvcAcceptedView, accepted_view, item_view
from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, DISK, IMAGE, NODE, VM
from stateward.domains.ovc.service import Service
from stateward.errors import UnknownName
from stateward.lifecycle import Lifecycle
from stateward.plugin.request_params import After, IdempotencyKey, Ns, PageLimit
from stateward.plugin.route_options import disclosure_of, engine_of, needs
from stateward.store.filters import Page, Selector

States = Annotated[str | None, QueryParameter(name="state", description="only in these states, with commas between")]
Parent = Annotated[str | None, QueryParameter(description="only what is below this object")]


class Collection(Struct, frozen=True):
    """A kind over HTTP: its name in paths, its plain actions, and whether it can be deleted."""

    path: str
    lifecycle: Lifecycle
    actions: tuple[str, ...]
    right: Right = Right.ACT
    deletes: bool = True


COLLECTIONS = (
    Collection("accounts", ACCOUNT, ("create", "enable", "disable", "restore", "delete", "destroy")),
    Collection(
        "cloudspaces",
        CLOUDSPACE,
        ("deploy", "enable", "disable", "pause", "resume", "reset", "restore", "delete", "destroy"),
    ),
    Collection(
        "machines",
        VM,
        ("deploy", "start", "stop", "pause", "resume", "reboot", "reset", "restore", "delete", "destroy"),
    ),
    Collection("disks", DISK, ("create", "restore", "delete", "destroy")),
    Collection("images", IMAGE, ("create", "enable", "disable", "restore", "delete", "destroy")),
    Collection("nodes", NODE, ("enable", "decommission"), Right.GOVERN, deletes=False),
)


def routes_of(collection: Collection) -> Sequence[HTTPRouteHandler]:
    """Return the routes of a collection."""

    @get(
        f"/{collection.path}/{{id:str}}",
        opt=needs(Right.READ),
        summary=f"Show one of the {collection.path}",
        operation_id=f"ovcGet{collection.path.title()}",
    )
    async def show_item(request: Call, ns: Ns, id: ItemId) -> ItemView:
        """Return an object."""
        return item_view(await service_of(request).get(ns, collection.lifecycle.kind, id), disclosure_of(request))

    @post(
        f"/{collection.path}/{{id:str}}/{{action:str}}",
        opt=needs(collection.right),
        status_code=202,
        summary=f"Act on one of the {collection.path}: {', '.join(collection.actions)}",
        operation_id=f"ovcAct{collection.path.title()}",
    )
    async def act(
        request: Call, ns: Ns, id: ItemId, action: ActionName, status: ExpectedStatus = None, key: IdempotencyKey = None
    ) -> OvcAcceptedView:
        """Submit an action: the state changes at once, and the work is queued."""
        if action not in collection.actions:
            raise UnknownName("action", action, collection.actions)
        return await act_on(request, ns, collection.lifecycle.kind, id, action, status=status, key=key)

    @get(
        f"/{collection.path}",
        opt=needs(Right.READ),
        summary=f"List {collection.path}",
        operation_id=f"ovcList{collection.path.title()}",
    )
    async def list_items(
        request: Call, ns: Ns, states: States = None, parent: Parent = None, after: After = None, limit: PageLimit = 100
    ) -> list[ItemView]:
        """Return a page of objects, in the order of their ids."""
        wanted = None if states is None else tuple(filter(None, states.split(",")))
        engine = engine_of(request)
        if wanted is not None:
            engine.kinds.require_states(collection.lifecycle.kind, wanted)
        chosen = Selector(ns, collection.lifecycle.kind, parent, wanted)
        items = await engine.store.reader.list_objects(chosen, Page(after, limit))
        disclosure = disclosure_of(request)
        return [item_view(item, disclosure) for item in items]

    handlers: list[HTTPRouteHandler] = [list_items, show_item, act]
    return [*handlers, _deleting(collection)] if collection.deletes else handlers


def service_of(request: Call) -> Service:
    """Return the service behind a call."""
    return Service(engine_of(request))


async def act_on(request: Call, ns: str, kind: str, id_: str, action: str, **how: Any) -> OvcAcceptedView:  # noqa: ANN401 - see `Service.act`
    """Submit an action of the caller on an object, and return the answer."""
    accepted = await service_of(request).act(ns, kind, id_, action, caller_of(request), **how)
    return accepted_view(accepted, disclosure_of(request))


def _deleting(collection: Collection) -> HTTPRouteHandler:
    @delete(
        f"/{collection.path}/{{id:str}}",
        opt=needs(collection.right),
        status_code=202,
        summary=f"Delete one of the {collection.path}",
        operation_id=f"ovcDelete{collection.path.title()}",
    )
    async def delete_item(
        request: Call, ns: Ns, id: ItemId, permanently: Permanently = False, status: ExpectedStatus = None
    ) -> OvcAcceptedView:
        """Move an object to the recycle bin, or destroy it; a repeated request succeeds."""
        action = "destroy" if permanently else "delete"
        return await act_on(request, ns, collection.lifecycle.kind, id, action, status=status)

    return delete_item
