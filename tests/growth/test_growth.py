"""Nothing costs more because there is more of everything else: the same calls on a small and on a large deployment.

Both are filled with copies of the same objects. What costs more on the larger one must be in `GROWS`, with its reason.
`make growth` runs the long form, and shows what grows; the suite runs the short form.
"""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import product
from pathlib import Path

import httpx
import pytest
from litestar.routes import HTTPRoute

from stateward.config import Config
from stateward.domains.mci.api.routes import history_routes
from stateward.engine import bounded_reads
from stateward.server.routes import operation_routes
from stateward.server.run import ServerApplication, prepare_application
from stateward.store import open_store
from stateward.store.filters import JournalFilter, Page, Selector
from tests.growth.filled import OBJECT, bytes_per_row, fill, run_sql
from tests.growth.meters import Meter, PostgresMeter, SqliteMeter
from tests.integration.server.server_harness import open_server
from tests.long_forms import in_long_form
from tests.stored.test_stored_databases import Stored, unpack
from tests.stored.write import NS

SIZES = {(1_000, 7_000): "short", (10_000, int(os.environ.get("OBJECTS", "1000000"))): "long"}
FACTOR = 1.5
HOST = "http://test"
NAMED = {
    "mci": "mci.mci", "vm": "mci.vm", "host_id": "leases.host", "lease_id": "leases.lease", "system": "systems.system",
    "cloudlet": "edge.cloudlet", "cluster": "edge.clusterinst", "node": "ovc.node", "space": "ovc.cloudspace",
}  # fmt: skip
"""The kinds of what the names in paths stand for."""

FILTERS = {
    "/api/v1/journal": (f"ns={NS}", "ns=none", "actor=none", "op=none", "kind=none", "since=2100-01-01T00:00:00Z"),
    f"/api/v1/ns/{NS}/operations": ("status=failed", "who=nobody", "kind=mci.vm&action=none", "status=running"),
    f"/api/v1/ns/{NS}/objects": ("kind=mci.vm", "kind=none", "state=none"),
}
"""Questions that few of the rows answer, or none."""

MOST_AT_ONCE = 10_000
"""The size above which what grows, and has its reason, is no longer asked for: an answer would take hours."""

DRY_RUN = {"X-Stateward-Dry-Run": "1"}

ROWS = 40
"""How many rows a page of a filtered list looks at: fewer than there are."""

GROWS = {
    what: reason
    for reason, all_of_them in {
        "counts all objects, by an index": (
            "a start",
            "/api/v1/namespaces",
            f"/api/v1/ns/{NS}/counts",
        ),
        "passes over the timers of other namespaces that are due before": (f"/api/v1/ns/{NS}/timers?limit=10",),
        "answers every object of the namespace, in parts": (f"/api/v1/ns/{NS}/map",),
        "the other program's lists have no pages": (
            f"/tumblebug/ns/{NS}/mci",
            *(f"/tumblebug/ns/{NS}/resources/{kind}" for kind in ("vNet", "securityGroup", "sshKey", "vm")),
            "/tumblebug/inspectResourcesOverview",
            f"/ns/{NS}/blazar/v1/os-hosts/properties",
        ),
        "compares all VMs with the lists of all providers": ("/api/v1/mci/orphans",),
        "chooses among all enabled nodes of the namespace, and locks them": ("a machine",),
        "reads the services and jobs of the namespace, to show which of them use the secrets": (
            f"/api/v1/systems/{NS}/-/secrets",
        ),
        "looks at each node of the namespace for orphans": (f"/api/v1/ovc/{NS}/healing",),
        "PostgreSQL walks a whole index of operations that are few; with 60,000 it doesn't": (
            f"/api/v1/ns/{NS}/operations?limit=10&who=nobody",
            f"/api/v1/ns/{NS}/operations?limit=10&status=failed",
        ),
    }.items()
    for what in all_of_them
}
"""What may cost more, and why."""


@pytest.mark.parametrize("sizes", in_long_form(SIZES, short=[(1_000, 7_000)]), ids=SIZES.values())
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_no_request_costs_more_in_a_larger_deployment(
    store: str, sizes: tuple[int, int], request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployments = [(unpack(store, tmp_path / str(size), request), size) for size in sizes]
    small, large = [asyncio.run(costs(*one, monkeypatch)) for one in deployments]
    slack = SqliteMeter.slack if store == "sqlite" else PostgresMeter.slack
    more = {what: (small[what], cost) for what, cost in large.items() if cost > small[what] * FACTOR + slack}
    for what, (before, now) in more.items():
        sys.stdout.write(f"{store}: {before} -> {now} {what}: {GROWS.get(what, 'WITHOUT A REASON')}\n")
    assert more.keys() <= GROWS.keys()


async def costs(stored: Stored, size: int, patch: pytest.MonkeyPatch) -> dict[str, int]:
    """Fill a deployment, and return what its start, each request made again, and an action cost."""
    await add_market(stored)
    paths, actions = await paths_of(stored), await actions_of(stored)
    await fill(stored, size)
    sys.stdout.write(f"{stored.folder.name} objects: {await bytes_per_row(stored)} bytes a row\n")
    with patch.context() as patched:
        for module in (bounded_reads, operation_routes, history_routes):
            patched.setattr(module, "READ_ROWS", ROWS)
        meter: Meter = PostgresMeter(patched, stored.database) if stored.database else SqliteMeter(patched)
        found = {"a start": await meter.cost(lambda: start(stored))}
        async with served(stored) as client:
            for path in paths if size <= MOST_AT_ONCE else (path for path in paths if path not in GROWS):
                assert (await client.get(path)).status_code < 500, path
                found[path] = await meter.cost(lambda path=path: client.get(path))  # type: ignore[misc]
            app = await client.put(f"/api/v1/edge/ns/{NS}/apps/new", json={"command": "true"})
            assert app.status_code < 300, app.text
            deploy = await client.post(f"/api/v1/systems/{NS}/market/deploys", json=deploy_body("/first"))
            assert deploy.status_code == 202, deploy.text  # it counts the instances of the namespace; others do not
            for what, (path, body) in actions.items():
                decided = partial(client.post, path, json=body, headers={} if path.endswith("/plan") else DRY_RUN)
                answer = await decided()
                assert answer.status_code < 300, f"{what}: {answer.text}"
                assert '"problem":{' not in answer.text, answer.text
                found[what] = await meter.cost(decided)
        await run_sql(
            stored, "DELETE FROM timers"
        )  # the next server doesn't know their kinds, and would pass over them all
        async with open_server(open_store(stored.database or str(stored.folder / "stateward.db"))) as server:
            await server.built("first")
            # The least of three: now and then the worker looks beside them for what is due.
            found["an action"] = min([await meter.cost(partial(server.built, name)) for name in ("p2", "p3", "p4")])
        return found


async def start(stored: Stored) -> None:
    """Start a server, and stop it."""
    async with opened(stored):
        pass


@asynccontextmanager
async def opened(stored: Stored) -> AsyncIterator[ServerApplication]:
    """Open a deployment without a worker."""
    config = Config(str(stored.folder), stored.database, rate=1_000_000, wrong_tokens=1_000_000, worker=False)
    async with prepare_application(config) as parts:
        yield parts


@asynccontextmanager
async def served(stored: Stored) -> AsyncIterator[httpx.AsyncClient]:
    """Serve a deployment, and give an administrator's client."""
    async with opened(stored) as parts:
        token = (stored.folder / "admin-token").read_text().strip()
        transport, headers = httpx.ASGITransport(parts.app), {"Authorization": f"Bearer {token}"}  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url=HOST, headers=headers) as client:
            yield client


async def paths_of(stored: Stored) -> list[str]:
    """Return the paths of all routes that read, with names of objects of all kinds, and pages of ten."""
    async with opened(stored) as parts:
        reader = parts.engine.store.reader
        objects = {one.kind: one.id for one in await reader.list_objects(Selector(NS), Page(None, 1_000))}
        (entry,) = await reader.journal(0, 1, JournalFilter(ns=NS))
        named = {name: [objects[kind]] for name, kind in NAMED.items()}
        routes = [one for one in parts.app.routes if isinstance(one, HTTPRoute) and "GET" in one.methods]
        named |= {"ns": [NS], "id": [objects["mci.vm"]], "op": [entry.op or "none"]}
        return [path for route in routes for path in filled_paths(route, named)]


async def add_market(stored: Stored) -> None:
    """Add a system with a service, at rest: the shop of the stored database has none yet."""
    for id_, kind, parent, spec in (
        ("market", "systems.system", "NULL", '{"backend":"simulated"}'),
        ("market:api", "systems.service", "'market'", '{"service":{"command":["api"]},"revision":"1","deploy":"d"}'),
    ):
        values = {"id": f"'{id_}'", "queue": f"'{id_}'", "kind": f"'{kind}'", "parent": parent, "spec": f"'{spec}'"}
        chosen = ", ".join(values.get(name, name) for name in OBJECT.split(", "))
        await run_sql(stored, f"INSERT INTO objects ({OBJECT}) SELECT {chosen} FROM objects WHERE id = 'shop'")


def deploy_body(path: str) -> dict[str, object]:
    """Return the request to deploy a service."""
    return {"path": path, "definition": "{command: [serve]}"}


async def actions_of(stored: Stored) -> dict[str, tuple[str, dict[str, object]]]:
    """Return the actions that are decided, but not carried out: their paths and bodies."""
    async with opened(stored) as parts:
        at_rest = await parts.engine.store.reader.list_objects(Selector(NS), Page(None, 1_000))
    ids = {one.kind: one.id for one in at_rest if one.op is None}
    host = {"resource_type": "physical:host", "min": 1, "max": 1}
    lease = {"start_date": "2100-01-01 00:00", "end_date": "2100-01-02 00:00", "reservations": [host]}
    machine: dict[str, object] = {"name": "new", "cloudspace": ids["ovc.cloudspace"], "image": ids["ovc.image"]}
    cluster = f"/api/v1/edge/ns/{NS}/cloudlets/{ids['edge.cloudlet']}/clusterinsts"
    plans: dict[str, tuple[str, dict[str, object]]] = {
        f"a {action} of {kind}": (f"/api/v1/ns/{NS}/plan", {"requests": [{"object": ids[kind], "action": action}]})
        for kind, action in (("mci.vm", "suspend"), ("ovc.vm", "stop"), ("leases.lease", "delete"))
    }
    return {
        "a deploy": (f"/api/v1/systems/{NS}/market/deploys", deploy_body("/second")),
        "a lease": (f"/ns/{NS}/blazar/v1/leases", {"name": "new", **lease}),
        "a cluster": (cluster, {"name": "new", "nodes": 1}),
        "an app": (f"{cluster}/autocluster-new/appinsts", {"app": "new"}),
        "a machine": (f"/api/v1/ovc/{NS}/machines", machine),
        **plans,
    }


def filled_paths(route: HTTPRoute, named: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the paths of a route, with the names filled in."""
    names = re.findall(r"{(\w+):\w+}", route.path)
    paged = "limit" in route.route_handler_map["GET"][0].parsed_fn_signature.parameters
    if any(part in route.path for part in ("/console", "/stream", "/docs")):
        return
    for values in product(*(named.get(name, ["none"]) for name in names)):
        path = re.sub(r"{\w+:\w+}", "{}", route.path).format(*values)
        yield from (path + "?limit=10" * paged, *(f"{path}?limit=10&{only}" for only in FILTERS.get(path, ())))
