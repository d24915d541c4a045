"""Every route of every domain for every role: what each may do follows from its method, but for those named here."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from litestar import Litestar

from stateward.store.filters import JournalFilter
from tests.integration.server.full_server import open_full_server
from tests.integration.server.server_harness import NS, OTHER, ServerHarness
from tests.integration.server.test_rights import RULES as GENERIC
from tests.integration.server.test_rights import routes

Rule = Literal["everybody", "read", "act", "read in shop", "act in shop", "govern in shop", "read everywhere", "govern"]

ASKING = (
    "recommendSpec", "lookupSpec", "lookupSpecs", "lookupImage", "lookupImages", "mciDynamicCheckRequest",
    "specImagePairReview", "fetchSpecs", "fetchImages", "fetchImagesAsync", "fetchPrice",
)  # fmt: skip
ASKING_IN_NAMESPACES = ("filterSpecs", "filterSpecsByRange", "searchImage", "fetchSpecs", "fetchImages")
"""The endpoints of Tumblebug that change nothing, although they are a POST."""

EXCEPTIONS: dict[str, Rule] = {
    # the console
    "GET /": "everybody",
    "GET /console/{name}": "everybody",
    # mci
    "GET /tumblebug/readyz": "everybody",
    "GET /tumblebug/ns/{ns}/control/mci/{mci}": "act in shop",
    "GET /tumblebug/ns/{ns}/control/mci/{mci}/vm/{vm}": "act in shop",
    "POST /tumblebug/ns/{ns}/mciDynamicReview": "read in shop",
    "POST /tumblebug/ns/{ns}/mci/{mci}/subGroupDynamicReview": "read in shop",
    "GET /tumblebug/livez": "everybody",
    "GET /spider/readyz": "everybody",
    "POST /tumblebug/inspectResources": "read everywhere",
    "GET /tumblebug/inspectResourcesOverview": "read everywhere",
    **dict.fromkeys([f"{one} /tumblebug/config" for one in ("GET", "POST", "DELETE")], "govern"),
    **dict.fromkeys([f"{one} /tumblebug/config/{{name}}" for one in ("GET", "DELETE")], "govern"),
    **dict.fromkeys([f"{one} /tumblebug/not-offered" for one in ("POST", "PUT", "DELETE", "HEAD")], "read"),
    **dict.fromkeys([f"POST /tumblebug/{one}" for one in ASKING], "read"),
    **dict.fromkeys([f"POST /tumblebug/ns/{{ns}}/resources/{one}" for one in ASKING_IN_NAMESPACES], "read in shop"),
    "POST /api/v1/mci/connections": "govern",
    "DELETE /api/v1/mci/connections/{name}": "govern",
    "POST /api/v1/mci/connections/{name}/grant": "govern",
    "POST /api/v1/mci/connections/{name}/revoke": "govern",
    "GET /api/v1/mci/orphans": "read everywhere",
    "GET /api/v1/mci/ns/{ns}/unmarked": "act in shop",
    "POST /api/v1/mci/orphans/terminate": "govern",
    # edge
    "POST /api/v1/edge/ns/{ns}/cloudlets/{cloudlet}/clusterinsts/{cluster}/appinsts/{app}/exec": "govern in shop",
    # ovc
    "POST /api/v1/ovc/{ns}/machines/{id}/migrate": "govern in shop",
    "POST /api/v1/ovc/{ns}/nodes": "govern in shop",
    "POST /api/v1/ovc/{ns}/nodes/{id}/maintenance": "govern in shop",
    "POST /api/v1/ovc/{ns}/nodes/{id}/{action}": "govern in shop",
    "DELETE /api/v1/ovc/{ns}/queues": "govern in shop",
    # systems: whoever deploys runs commands on the machine
    "POST /api/v1/systems/{ns}/{system}/deploys": "govern in shop",
    "POST /api/v1/systems/{ns}/{system}/rollback": "govern in shop",
    "POST /api/v1/systems/{ns}/-/nodes": "govern in shop",
    "DELETE /api/v1/systems/{ns}/-/nodes/{node}": "govern in shop",
    "POST /api/v1/systems/{ns}/-/nodes/{node}/drain": "govern in shop",
    "POST /api/v1/systems/{ns}/-/nodes/{node}/uncordon": "govern in shop",
    "POST /api/v1/systems/{ns}/{system}/exec": "govern in shop",
    "POST /api/v1/systems/{ns}/-/secrets": "govern in shop",
    "PUT /api/v1/systems/{ns}/-/secrets/{secret}": "govern in shop",
    "DELETE /api/v1/systems/{ns}/-/secrets/{secret}": "govern in shop",
    "POST /api/v1/systems/{ns}/-/secret-rotation": "govern in shop",
}
READS: set[Rule] = {"everybody", "read", "read in shop"}
MAY: dict[str, set[Rule]] = {
    "viewer":      READS,
    "operator":    READS | {"act", "act in shop"},
    "local admin": READS | {"act", "act in shop", "govern in shop"},
    "admin":       READS | {"act", "act in shop", "govern in shop", "read everywhere", "govern"},
    "reader":      READS | {"read everywhere"},
    "outsider":    {"everybody", "read", "act"},
    "agent":       {"everybody"},
    "nobody":      {"everybody"},
}  # fmt: skip


def rule_of(method: str, path: str) -> Rule:
    """Return what a route needs."""
    if f"{method} {path}" in EXCEPTIONS:
        return EXCEPTIONS[f"{method} {path}"]
    if "{ns}" in path:
        return "read in shop" if method == "GET" else "act in shop"
    return "read" if method == "GET" else "act"


def of_domains(app: Litestar) -> Iterator[tuple[str, str]]:
    """Return every method and path that is not of the generic API."""
    return ((method, path) for method, path in routes(app) if f"{method} {path}" not in GENERIC)


async def answers(harness: ServerHarness, who: str) -> dict[str, int]:
    """Call every route of the domains as somebody; return where that was refused for who it is."""
    found = {}
    for method, path in of_domains(harness.app):
        url = "http://test" + re.sub(r"{(\w+)}", lambda part: NS if part[1] == "ns" else "x", path)
        body: dict[str, str] | None = {} if method in ("POST", "PUT", "PATCH") else None
        status = (await harness.caller(who).request(method, url, json=body)).status_code
        assert status < 500, (who, method, path)
        found[f"{method} {path}"] = status if status in (401, 403) else 0
    return found


async def test_a_caller_passes_where_its_token_opens_and_nowhere_else_in_all_domains(tmp_path: Path) -> None:
    async with open_full_server(tmp_path) as harness:
        for who, may in MAY.items():
            refused = 401 if who == "nobody" else 403
            expected = {
                f"{method} {path}": 0 if rule_of(method, path) in may else refused
                for method, path in of_domains(harness.app)
            }
            assert await answers(harness, who) == expected, who


async def test_whoever_is_refused_has_changed_nothing_in_any_domain(tmp_path: Path) -> None:
    async with open_full_server(tmp_path) as harness:
        for who in ("viewer", "agent", "nobody"):
            await answers(harness, who)
        for ns in (NS, OTHER):
            assert await harness.engine.store.reader.journal(0, 1_000, JournalFilter(ns=ns)) == []


async def test_every_exception_is_a_route_that_there_is(tmp_path: Path) -> None:
    async with open_full_server(tmp_path) as harness:
        served = {f"{method} {path}" for method, path in of_domains(harness.app)}
    assert EXCEPTIONS.keys() <= served
    for prefix in ("/tumblebug", "/api/v1/mci", "/blazar/v1", "/ns/{ns}/blazar/v1", "/api/v1/ovc", "/api/v1/edge"):
        assert any(f" {prefix}/" in one for one in served)
    assert any(" /api/v1/systems/" in one for one in served)


GENERAL = {
    "edge.app", "edge.appinst", "edge.autoprov", "edge.autoscale", "edge.cloudlet", "edge.clusterinst", "edge.flavor",
    "leases.host", "leases.lease", "leases.property",
    "mci.image", "mci.mci", "mci.securitygroup", "mci.spec", "mci.sshkey", "mci.vm", "mci.vnet",
    "ovc.account", "ovc.cloudspace",
    "systems.system",
}  # fmt: skip
"""The kinds whose objects may be made over the general API; each declares it."""


async def test_nobody_makes_an_object_over_the_general_api_whose_kind_does_not_declare_it(tmp_path: Path) -> None:
    async with open_full_server(tmp_path) as harness:
        assert {kind.name for kind in harness.engine.kinds if kind.general} == GENERAL
        for kind in harness.engine.kinds:
            if kind.name in GENERAL:
                continue
            for who in ("operator", "local admin", "admin"):
                body = {"id": "x", "kind": kind.name, "spec": {"name": "x", "provider": "p", "region": "r"}}
                answer = await harness.post(f"/ns/{NS}/objects", body, who)
                assert answer.status_code == (400 if kind.name.startswith(("access.", "engine.protection")) else 403), (
                    kind.name
                )
        assert await harness.engine.store.reader.journal(0, 1_000, JournalFilter(ns=NS)) == []
