"""The generic API as typed calls, one method for each route."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from stateward.client.arguments import ObjectSelector
from stateward.client.http import HttpConnection, Params, idempotency_headers
from stateward.client.url_paths import NamedPart, UrlPath, url_path
from stateward.schemas import deployment
from stateward.schemas.journal import LinePage, LineView
from stateward.schemas.objects import (
    AllowedView,
    NamespaceView,
    ObjectCounts,
    ObjectPage,
    ObjectView,
    ProtectionView,
)
from stateward.schemas.operations import AcceptedView, GroupView, OperationPage, OperationView, Prospect
from stateward.schemas.preview import PreviewView
from stateward.schemas.timeline import TimelineView
from stateward.schemas.waiting import WhyView

if TYPE_CHECKING:
    from stateward.schemas.access import IssuedView, TokenView
    from stateward.schemas.kind_info import KindInfo

PAGE = 500
"""Rows in one page."""

Body = Mapping[str, Any]


class JournalPage(Struct, frozen=True):
    """A page of journal entries, the number to continue after, and whether more entries exist already."""

    lines: list[LineView]
    after: int
    more: bool
    pruned: int | None = None  # entries up to this number may have been pruned


class CallerView(Struct, frozen=True):
    """Whose token it is, what it may do, and the namespaces that it opens."""

    name: str
    role: str
    namespaces: list[str]


class ApiClient:
    """The API of one server; `has_worker` is false if no worker runs the accepted operations."""

    def __init__(self, http: HttpConnection, *, has_worker: bool = True) -> None:
        self.http = http
        self.has_worker = has_worker

    # --- kinds and objects -------------------------------------------------------------------------------------------

    def kinds(self) -> "list[KindInfo]":
        """Return every kind: its lifecycle, and the schemas of its specs and arguments."""
        from stateward.schemas.kind_info import KindInfo  # it comes with the compiler of lifecycles

        return self.http.call(list[KindInfo], "GET", url_path("kinds"))

    def plugins(self) -> list[deployment.PluginView]:
        """Return the domains of the server, and those that could not be loaded."""
        return self.http.call(list[deployment.PluginView], "GET", url_path("plugins"))

    def namespaces(self) -> list[NamespaceView]:
        """Return the namespaces that have objects, with their counts."""
        return self.http.call(list[NamespaceView], "GET", url_path("namespaces"))

    def object(self, ns: str, id_: str) -> ObjectView:
        """Return one object."""
        return self.http.call(ObjectView, "GET", _object(ns, id_))

    def objects(
        self, ns: str | None, chosen: ObjectSelector, most: int | None = None, sort: str | None = None
    ) -> Iterator[ObjectView]:
        """Yield the chosen objects of a namespace (None: of all), page by page; at most `most` of them."""
        after: str | None = None
        left = most
        path = url_path("objects") if ns is None else _in_namespace(ns, "objects")
        while left is None or left > 0:
            limit = PAGE if left is None else min(PAGE, left)
            params: Params = {**_filters(chosen), "sort": sort, "after": after, "limit": limit}
            page = self.http.call(ObjectPage, "GET", path, params=params)
            yield from page.items
            left = None if left is None else left - len(page.items)
            after = page.next
            if after is None:
                return

    def count_objects(self, ns: str, chosen: ObjectSelector, by: Sequence[str]) -> ObjectCounts:
        """Count the chosen objects by the values of some fields."""
        params: Params = {"by": ",".join(by), **_filters(chosen)}
        return self.http.call(ObjectCounts, "GET", _in_namespace(ns, "counts"), params=params)

    def allowed(self, ns: str, id_: str) -> AllowedView:
        """Return the actions that an object allows now, and why it refuses the others."""
        return self.http.call(AllowedView, "GET", _object(ns, id_, "allowed"))

    def why(self, ns: str, id_: str) -> WhyView:
        """Return why an object waits."""
        return self.http.call(WhyView, "GET", _object(ns, id_, "why"))

    # --- requests ----------------------------------------------------------------------------------------------------

    def create(self, ns: str, body: Body) -> AcceptedView:
        """Create an object."""
        return self.http.call(
            AcceptedView, "POST", _in_namespace(ns, "objects"), body=body, headers=idempotency_headers()
        )

    def act(self, ns: str, id_: str, action: str, body: Body, version: int | None = None) -> AcceptedView:
        """Request an action on an object; with a version, only if it is still at that version."""
        path = _object(ns, id_, "actions", ("action", action))
        headers = {**idempotency_headers(), **_if_match(version)}
        return self.http.call(AcceptedView, "POST", path, body=body, headers=headers)

    def set_labels(self, ns: str, id_: str, labels: Mapping[str, str], version: int | None = None) -> ObjectView:
        """Replace the labels of an object; with a version, only if it is still at that version."""
        path = _object(ns, id_, "labels")
        return self.http.call(ObjectView, "PUT", path, body={"labels": labels}, headers=_if_match(version))

    def act_on_group(self, ns: str, action: str, body: Body) -> GroupView:
        """Request an action on all objects that a selector chooses."""
        return self.http.call(GroupView, "POST", _in_namespace(ns, "actions", ("action", action)), body=body)

    def preview(self, ns: str, id_: str, action: str, body: Body) -> PreviewView:
        """Return what an action on an object would do."""
        return self.http.call(
            PreviewView, "POST", _object(ns, id_, "actions", ("action", action), "preview"), body=body
        )

    def preview_group(self, ns: str, action: str, body: Body) -> PreviewView:
        """Return what an action on many objects would do."""
        path = _in_namespace(ns, "actions", ("action", action), "preview")
        return self.http.call(PreviewView, "POST", path, body=body)

    def protect(self, ns: str, id_: str, body: Body) -> ObjectView:
        """Set or lift the deletion protection of an object."""
        return self.http.call(ObjectView, "PUT", _object(ns, id_, "protection"), body=body)

    def protect_namespace(self, ns: str, body: Body) -> ProtectionView:
        """Set or lift the deletion protection of a namespace."""
        return self.http.call(ProtectionView, "PUT", _in_namespace(ns, "protection"), body=body)

    def plan(self, ns: str, requests: Sequence[Body]) -> list[Prospect]:
        """Return what requests would lead to."""
        return self.http.call(list[Prospect], "POST", _in_namespace(ns, "plan"), body={"requests": requests})

    # --- operations --------------------------------------------------------------------------------------------------

    def operation(self, ns: str, op: str) -> OperationView:
        """Return one operation."""
        return self.http.call(OperationView, "GET", _operation(ns, op))

    def operations(self, ns: str | None, limit: int, **only: str | None) -> list[OperationView]:
        """Return operations of a namespace (None: of all), newest first; `only` are filters such as `object`."""
        operations, after = list[OperationView](), None
        path = url_path("operations") if ns is None else _in_namespace(ns, "operations")
        while len(operations) < limit:
            params: Params = {**only, "after": after, "limit": min(PAGE, limit - len(operations))}
            page = self.http.call(OperationPage, "GET", path, params=params)
            operations += page.items
            after = page.next
            if after is None:
                break
        return operations

    def timeline(self, ns: str, op: str) -> TimelineView:
        """Return an operation, and where its time went."""
        return self.http.call(TimelineView, "GET", _operation(ns, op, "timeline"))

    def children(self, ns: str, op: str) -> list[OperationView]:
        """Return the operations that an operation waits for."""
        return self.http.call(OperationPage, "GET", _operation(ns, op, "children")).items

    @contextmanager
    def stream_events(self, ns: str, op: str, last: str | None, patience: float | None) -> Iterator[Iterator[str]]:
        """Open the event stream of an operation, behind the last event; it ends after `patience` seconds of silence."""
        with self.http.stream_lines(_operation(ns, op, "events"), last, patience) as lines:
            yield lines

    def cancel(self, ns: str, op: str) -> OperationView:
        """Cancel an operation."""
        return self.http.call(OperationView, "POST", _operation(ns, op, "cancel"))

    def signal(self, ns: str, op: str, name: str, payload: Any = None) -> OperationView:  # noqa: ANN401 - any JSON
        """Send a signal to an operation."""
        path, headers = _operation(ns, op, "signals", ("signal", name)), idempotency_headers()
        return self.http.call(OperationView, "POST", path, body={"payload": payload}, headers=headers)

    # --- the journal -------------------------------------------------------------------------------------------------

    def object_history(self, ns: str, id_: str) -> Iterator[LineView]:
        """Yield the journal entries of an object, page by page."""
        after: str | None = "0"
        while after is not None:
            params: Params = {"after": after, "limit": PAGE}
            page = self.http.call(LinePage, "GET", _object(ns, id_, "history"), params=params)
            yield from page.items
            after = page.next

    def journal(self, after: int, limit: int = PAGE, **only: str | None) -> JournalPage:
        """Return the journal entries after a number, of the namespaces that the token opens."""
        params: Params = {"after": after, "limit": limit, **only}
        page = self.http.call(LinePage, "GET", url_path("journal"), params=params)
        if page.next is not None:
            return JournalPage(page.items, int(page.next), True, page.pruned)
        last = page.items[-1].seq if page.items else after
        return JournalPage(page.items, max(last, page.seq), False, page.pruned)  # an old server reports no `seq`

    # --- the deployment ----------------------------------------------------------------------------------------------

    def lanes(self) -> deployment.LanesView:
        """Return all lanes and their groups."""
        return self.http.call(deployment.LanesView, "GET", url_path("lanes"))

    def set_lane(self, lane: str, grp: str, capacity: int) -> deployment.LaneView:
        """Set how many operations may run in a lane at once."""
        path = url_path("lanes", *(("lane", part) for part in lane.split("/")))
        return self.http.call(deployment.LaneView, "PUT", path, body={"grp": grp, "capacity": capacity})

    def set_lane_group(self, grp: str, lanes: int) -> deployment.LaneGroupView:
        """Set how many lanes of a group may be active at once."""
        return self.http.call(
            deployment.LaneGroupView, "PUT", url_path("groups", ("group", grp)), body={"lanes": lanes}
        )

    def heal(self) -> deployment.HealedView:
        """Run the healer now."""
        return self.http.call(deployment.HealedView, "POST", url_path("heal"))

    def forget(self, ns: str, object_: str, kind: str) -> ObjectView:
        """Remove the record of an object of a kind that nobody knows."""
        return self.http.call(ObjectView, "POST", _object(ns, object_, "forget"), body={"kind": kind})

    def prune(self, older: int, *, dry_run: bool, after: int = 0) -> deployment.PrunedView:
        """Delete the history of what ended more than `older` seconds ago, or a part of it."""
        body = {"older": older, "dry_run": dry_run, "after": after}
        return self.http.call(deployment.PrunedView, "POST", url_path("prune"), body=body)

    def stuck(self) -> list[deployment.StuckView]:
        """Return the stuck work of the namespaces that the token opens."""
        return self.http.call(list[deployment.StuckView], "GET", url_path("stuck"))

    def workers(self) -> list[deployment.WorkerView]:
        """Return the processes that claim work."""
        return self.http.call(list[deployment.WorkerView], "GET", url_path("workers"))

    def me(self) -> CallerView:
        """Return whose token it is, and what it opens."""
        return self.http.call(CallerView, "GET", url_path("me"))

    def tokens(self) -> "list[TokenView]":
        """Return the tokens there are."""
        from stateward.schemas.access import TokenView  # roles come with the engine, which other commands do not need

        return self.http.call(list[TokenView], "GET", url_path("tokens"))

    def issue_token(self, body: Body) -> "IssuedView":
        """Create a token."""
        from stateward.schemas.access import IssuedView

        return self.http.call(IssuedView, "POST", url_path("tokens"), body=body)

    def revoke_token(self, id_: str) -> "TokenView":
        """Revoke a token."""
        from stateward.schemas.access import TokenView

        return self.http.call(TokenView, "DELETE", url_path("tokens", ("token", id_)))


def _if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}


def _in_namespace(ns: str, *parts: str | NamedPart) -> UrlPath:
    return url_path("ns", ("namespace", ns), *parts)


def _object(ns: str, id_: str, *parts: str | NamedPart) -> UrlPath:
    return _in_namespace(ns, "objects", ("object", id_), *parts)


def _operation(ns: str, op: str, *parts: str | NamedPart) -> UrlPath:
    return _in_namespace(ns, "operations", ("operation", op), *parts)


def _filters(chosen: ObjectSelector) -> Params:
    return {
        "kind": chosen.kind,
        "state": ",".join(chosen.states) or None,
        "parent": chosen.parent,
        "label": [f"{name}={value}" for name, value in chosen.labels.items()],
        "q": chosen.q,
    }
