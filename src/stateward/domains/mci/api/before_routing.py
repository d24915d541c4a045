"""Paths of Tumblebug that have no route of their own: newer names of routes, and endpoints that are not offered.

A route of the framework costs milliseconds at the start of a server, and there are hundreds of such paths. A request is
therefore changed before it is routed: a newer name becomes the older one, and what is not offered goes to one route,
which answers 501 with the reason.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Generic, TypeVar

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from stateward.domains.mci.api.release_names import RenamedResponse, present_path, with_older_parameters

ORIGINAL_PATH = "mci.path"
"""The key in the scope of a request: its path as the caller sent it."""

REASON = "mci.reason"
"""The key in the scope of a request: why it is not offered."""

Endpoint = tuple[str, str]
"""A method and a path pattern."""


class BeforeRouting:
    """ASGI middleware before the routes below `base`."""

    def __init__(
        self, app: ASGIApp, base: str, served: Iterable[str], missing: dict[Endpoint, str], refusal: str
    ) -> None:
        self._app, self._base, self._refusal = app, base, refusal
        known = {*served, *(path for _, path in missing)}
        self._older = PathTable((new, path) for path in known if (new := present_path(path)) != path)
        methods = {method for method, _ in missing}
        self._missing = {
            method: PathTable((path, why) for (of, path), why in missing.items() if of == method) for method in methods
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != ScopeType.HTTP or not scope["path"].startswith(f"{self._base}/"):
            await self._app(scope, receive, send)
            return
        scope[ORIGINAL_PATH] = scope["path"]  # type: ignore[literal-required]
        path = scope["path"].removeprefix(self._base)
        older = self._older.find(path)
        if older is not None:
            send = RenamedResponse(send)
            pairs = zip(older.strip("/").split("/"), path.strip("/").split("/"), strict=True)
            path = "/" + "/".join(got if is_parameter(want) else want for want, got in pairs)
        scope["query_string"] = with_older_parameters(scope["query_string"])
        if "//" in path:  # the framework would leave the empty part out, and take the next one for the missing name
            path = self._refusal
        missing = self._missing.get(str(scope.get("method")))
        reason = None if missing is None else missing.find(path)
        if reason is not None:
            scope[REASON] = reason  # type: ignore[literal-required]
            path = self._refusal
        scope["path"] = f"{self._base}{path}"
        await self._app(scope, receive, send)


# --- path patterns ---------------------------------------------------------------------------------------------------

T = TypeVar("T")


class PathTable(Generic[T]):
    """Values by path patterns; a pattern with more fixed segments comes first."""

    def __init__(self, rows: Iterable[tuple[str, T]]) -> None:
        by_length: dict[int, list[tuple[list[str], T]]] = defaultdict(list)
        for pattern, value in rows:
            segments = pattern.strip("/").split("/")
            by_length[len(segments)].append((segments, value))
        self._rows = {
            count: sorted(same, key=lambda row: sum(map(is_parameter, row[0]))) for count, same in by_length.items()
        }

    def find(self, path: str) -> T | None:
        """Return the value of the pattern that a path fits, or None."""
        given = path.strip("/").split("/")
        for segments, value in self._rows.get(len(given), ()):
            if all(want == got or (got and is_parameter(want)) for want, got in zip(segments, given, strict=True)):
                return value
        return None


def is_parameter(segment: str) -> bool:
    """Tell whether a segment of a pattern stands for any text."""
    return segment.startswith("{")
