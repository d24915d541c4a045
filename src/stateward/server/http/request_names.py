"""Names in requests to the API: query parameters and namespaces that do not exist are refused, with the nearest name.

A mistyped name that is ignored gives an answer to another question: an empty list, or a list of everything. So each
route of ours takes the query parameters that it declares and no others, and reading in a namespace that nobody knows is
an error. The compatible APIs stay as their originals are, except for routes that change something and for filters: a
filter that is ignored would select everything. Every route refuses a parameter with one value that is given twice,
because one of the two would be ignored.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from litestar.handlers import BaseRouteHandler
from litestar.routes import BaseRoute, HTTPRoute
from litestar.types import HTTPScope

from stateward.access import Grant, Tokens
from stateward.access.tokens import ANY, SYSTEM
from stateward.engine import Engine
from stateward.errors import BadInput, UnknownField, UnknownName
from stateward.naming import DEFAULT_NAMESPACE, NAME
from stateward.plugin.route_options import STRICT_QUERY

if TYPE_CHECKING:
    from litestar._kwargs import KwargsModel

_TAKES, _STRICT = "query parameters", "no other query parameters"
_MOST_TOKENS = 1_000


def bind_query_names(routes: Iterable[BaseRoute], base: str) -> None:
    """Note what each route declares; those below a path, and those elsewhere that ask for it, take nothing else."""
    for route in routes:
        if not isinstance(route, HTTPRoute):
            continue
        for handler, takes in route.route_handler_map.values():
            handler.opt[_TAKES] = takes
            handler.opt[_STRICT] = route.path.startswith(base) or bool(handler.opt.get(STRICT_QUERY))


MAX_KNOWN = 10_000
"""How many namespaces are known without a read."""


class RequestNames:
    """The check of the names in a request. A namespace that was known once stays known, and costs no read."""

    def __init__(self, engine: Engine, tokens: Tokens) -> None:
        self._engine = engine
        self._tokens = tokens
        self._known = {DEFAULT_NAMESPACE}

    async def check(self, scope: HTTPScope, handler: BaseRouteHandler) -> None:
        """Raise if a query parameter is repeated or unknown to the route, or if the namespace of a read is unknown."""
        takes: KwargsModel | None = handler.opt.get(_TAKES)
        if takes is None:
            return
        query = scope["query_string"].decode("latin-1")
        pairs = parse_qsl(query, keep_blank_values=True) if query else []
        given = dict(pairs)
        declared = {parameter.field_alias for parameter in takes.expected_query_params} if given else set()
        if len(given) < len(pairs):
            _refuse_repeated(pairs, declared - set(takes.sequence_query_parameter_names))
        if not handler.opt[_STRICT]:
            return
        refused = handler.opt.get(STRICT_QUERY)
        for name in given:
            if name not in declared and (not isinstance(refused, frozenset) or name.lower() in refused):
                raise UnknownField(name, sorted(declared), "query parameter of this route")
        if isinstance(refused, frozenset):
            return
        ns = scope["path_params"].get("ns") or given.get("ns")
        if ns is not None and ns not in self._known and scope["method"] == "GET" and re.match(NAME, ns):
            await self.require_namespace(scope["auth"], ns)

    async def require_namespace(self, grant: Grant, ns: str) -> None:
        """Raise unless a namespace holds or held objects, is registered or has a token; names only what a token opens.

        The caller may read the namespace, so nothing is disclosed by the answer.
        """
        stored = await self._engine.store.reader.namespaces()
        if ns in stored or ns in grant.namespaces or await self._is_registered(ns) or await self._has_token(ns):
            if len(self._known) >= MAX_KNOWN:
                self._known = {DEFAULT_NAMESPACE}
            self._known.add(ns)
            return
        known = [name for name in stored if name != SYSTEM] if ANY in grant.namespaces else grant.namespaces
        raise UnknownName("namespace", ns, sorted({DEFAULT_NAMESPACE, *known}))

    async def _is_registered(self, ns: str) -> bool:
        keys = [name(ns) for kind in self._engine.kinds if (name := kind.rules.names_namespace) is not None]
        records = await self._engine.store.reader.objects(keys)
        return any(not record.removed for record in records.values())

    async def _has_token(self, ns: str) -> bool:
        tokens = await self._tokens.list(limit=_MOST_TOKENS)
        return any(named.partition(":")[0] == ns for token in tokens for named in token.namespaces)


def _refuse_repeated(pairs: list[tuple[str, str]], single: set[str]) -> None:
    """Raise if a query parameter with one value is given more than once."""
    given = Counter(name for name, _ in pairs)
    for name in single:
        if given[name] > 1:
            raise BadInput(name, None, f"given once, and it is in the query {given[name]} times")
