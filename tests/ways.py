"""Every way by which something about an object can be read over HTTP, filled in with all that there is."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from litestar import Litestar
from litestar.routes import HTTPRoute

from stateward.store.port import Reader
from stateward.store.selection import JournalFilter, Page, Selector

NOT_ABOUT_OBJECTS = (
    "/docs",
    "/schema",
    "/metrics",
    "/console",
    "/kinds",
    "/namespaces",
    "/me",
    "/tokens",
    "/workers",
    "/lanes",
    "/quotas",
)
"""Routes that show no object, operation or line of the journal: what they tell has tests of its own."""


async def ways_out(app: Litestar, reader: Reader, ns: str, **more: Sequence[str]) -> list[str]:
    """Return the paths of all routes that show something of a namespace; raises for a route that nobody thought of."""
    objects = [one.id for one in await reader.list_objects(Selector(ns), Page(None, 1000))]
    lines = await reader.lines(0, 10_000, JournalFilter(ns=ns))
    operations = sorted({line.op for line in lines if line.op is not None})
    named = {"ns": [ns], "id": objects, "op": operations, "tree": objects[:1], **more}
    return [*_filled(app, named), *(f"/api/v1/ns/{ns}/operations?object={one}" for one in objects)]


def _filled(app: Litestar, named: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for route in app.routes:
        about = isinstance(route, HTTPRoute) and "GET" in route.methods
        if not about or any(part in route.path for part in NOT_ABOUT_OBJECTS):
            continue
        names = re.findall(r"{(\w+):\w+}", route.path)
        assert set(names) <= named.keys(), f"{route.path} shows something that this test does not know"
        for values in product(*(named[name] for name in names)):
            path = route.path
            for name, value in zip(names, values, strict=True):
                path = re.sub(rf"{{{name}:\w+}}", value, path)
            yield path
