"""Every route and every action with references to what another namespace has, for every role that is not its own.

The routes and the forms of their bodies are taken from the description of the application, and the actions from the
kinds, so a new one is tested without a line here. Another namespace has objects of all domains; their ids and names are
put wherever a path, a body, an argument or a spec names something. Whoever has no token for that namespace learns
nothing of them, changes nothing of them, and stores no reference to them.
"""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stateward.access.roles import ACTORS
from stateward.access.tokens import SYSTEM
from stateward.domains.mci.model import DEPLOYMENT_NS
from stateward.engine import Selector
from stateward.errors import StatewardError
from stateward.store.changes import Changes
from stateward.store.filters import Page
from stateward.store.port import Tx
from stateward.store.records import Key, Object, to_json
from tests.integration.server.full_server import open_full_server
from tests.integration.server.server_harness import NS, OTHER, ServerHarness
from tests.integration.server.test_hostile_specs import ROLES
from tests.integration.server.test_rights import RULES as GENERIC
from tests.integration.server.test_rights_of_domains import MAY, rule_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALLERS = ("viewer", "operator", "local admin")
MARK = "only-the-bank-knows"
VAULT: list[tuple[str, str, str, dict[str, Any]]] = [
    # kind              id                 state        spec
    ("ovc.account",     "account-vault",   "CONFIRMED", {"name": "vault"}),
    ("ovc.cloudspace",  "space-vault",     "DEPLOYED",  {"name": "vault", "account": "account-vault"}),
    ("ovc.image",       "image-vault",     "CREATED",   {"name": "vault", "account": "account-vault"}),
    ("ovc.disk",        "disk-vault",      "CREATED",   {"name": "vault", "account": "account-vault"}),
    ("ovc.node",        "node-vault",      "ENABLED",   {"name": "vault"}),
    ("ovc.vm",          "vm-vault",        "HALTED",    {"name": "vault", "account": "account-vault",
                                                         "cloudspace": "space-vault", "image": "image-vault"}),
    ("edge.cloudlet",   "site-vault",      "Ready",     {}),
    ("edge.flavor",     "flavor.vault",    "Defined",   {"size": "small"}),
    ("edge.app",        "app.vault",       "Defined",   {"command": f"echo {MARK}"}),
    ("edge.autoscale",  "autoscale.vault", "Defined",   {}),
    ("edge.autoprov",   "autoprov.vault",  "Defined",   {"cloudlets": ["site-vault"]}),
    ("edge.clusterinst", "site-vault:c1",  "Ready",     {}),
    ("leases.host",     "host-vault",      "up",        {"name": "vault", "properties": {"gpu": MARK}}),
    ("systems.system",  "system-vault",    "stable",    {"backend": "local"}),
    ("systems.secret",  "secret+vault",    "stored",    {"version": 1, "updated": 1.0}),
    ("systems.node",    "node+vault",      "ready",     {}),
    ("mci.mci",         "mci-vault",       "Running",   {"name": "mci-vault", "uid": "u-vault", "groups": []}),
    ("mci.image",       "image:vault",     "Registered", {"id": "vault", "connection": "cloud-vault",
                                                          "csp_name": MARK}),
]  # fmt: skip
"""What the other namespace has."""

NAMES = {id_ for _, id_, _, _ in VAULT} | {"cloud-vault", "vault"}
REFERENCES = {
    "account": "account-vault", "cloudspace": "space-vault", "image": "image-vault", "disk": "disk-vault",
    "node": "node-vault", "vm": "vm-vault", "machine": "vm-vault", "clone_of": "vm-vault",
    "cloudlet": "site-vault", "cluster": "c1", "app": "vault", "flavor": "vault", "autoscale": "vault",
    "autoprov": "vault", "host_id": "vault", "hosts": "vault", "system": "system-vault", "secret": "vault",
    "mci": "mci-vault", "imageId": "vault", "commonImage": "vault", "connection": "cloud-vault",
    "connectionName": "cloud-vault", "nsId": OTHER, "parent": "account-vault", "object": "vm-vault", "tree": "vm-vault",
}  # fmt: skip
"""The values of fields, arguments and parts of paths that name something."""

TEXTS = {"path": "/x", "start_date": "2031-01-01 00:00", "end_date": "2031-01-02 00:00", "backend": "simulated"}
TEXTS |= {"command": "sleep 1"}
"""The values of fields that have a form of their own."""

PATH = {"ns": NS, "kind": "ovc.vm", "action": "stop", "resource_type": "image", "group": "g1", "op": "none"}
DOMAINS = {"/ovc/": "ovc", "/edge/": "edge", "/blazar": "leases", "/systems/": "systems", "/tumblebug": "mci"}
DOMAINS |= {"/mci/": "mci", "/spider": "mci"}
"""The domains of paths; the other paths are of all."""

WAITING = {"DELETE /api/v1/ovc/{ns}/queues", "DELETE /api/v1/ovc/{ns}/queues/{id}"}
WAITING |= {"POST /blazar/v1/leases", "POST /ns/{ns}/blazar/v1/leases"}
"""Routes that answer when work has ended, which it never does without a worker."""

FAR = "http://test"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def full(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerHarness]:
    """The whole application without a worker; the other namespace has something of each domain."""
    folder: Path = tmp_path_factory.mktemp("full")
    async with open_full_server(folder, worker=False) as harness:
        await harness.engine.store.transact(_fill_vault)
        cloud = {"name": "cloud-vault", "provider": "aws", "region": "us-east-1", "namespaces": [OTHER]}
        assert (await harness.post("/mci/connections", cloud | {"driver": "simulated"})).status_code < 300
        for ns in (NS, OTHER):
            assert (await harness.post(f"{FAR}/tumblebug/ns", {"name": ns})).status_code < 300
        yield harness


async def _fill_vault(tx: Tx) -> None:
    labels = to_json({"owner": MARK})
    await tx.apply(
        Changes(
            objects=[
                Object(OTHER, id_, kind, state, tx.now, 1, 1, None, id_, None, to_json(spec), labels, MARK, tx.now)
                for kind, id_, state, spec in VAULT
            ]
        )
    )


async def outside(harness: ServerHarness) -> dict[Key, Object]:
    """Return all objects of the other namespace and of the deployment, but for sessions and the callers' namespace."""
    places = (OTHER, SYSTEM, DEPLOYMENT_NS)
    found = await harness.engine.store.reader.list_objects(Selector(places), Page(None, 10_000))
    assert len(found) > len(VAULT)
    return {one.key: one for one in found if one.kind != "access.session" and one.id != f"ns:{NS}"}


async def references(harness: ServerHarness) -> list[tuple[str, str]]:
    """Return the objects of the callers' namespace whose specs, parents or labels name one of the other namespace."""
    found = await harness.engine.store.reader.list_objects(Selector(NS), Page(None, 10_000))
    return [
        (one.id, name)
        for one in found
        for name in NAMES
        if f'"{name}"' in one.spec or one.parent == name or f'"{name}"' in one.labels
    ]


# --- bodies ----------------------------------------------------------------------------------------------------------


def body_of(description: dict[str, Any], schema: dict[str, Any], name: str = "", seen: tuple[str, ...] = ()) -> Any:
    """Return a value of a schema in which everything that names something names what the other namespace has."""
    if "$ref" in schema:
        record = schema["$ref"].rpartition("/")[2]
        if record in seen:
            return None
        return body_of(description, description["components"]["schemas"][record], name, (*seen, record))
    for choice in ("oneOf", "anyOf"):
        if choice in schema:
            options = [one for one in schema[choice] if one.get("type") != "null"]
            return body_of(description, options[0], name, seen) if options else None
    if schema.get("enum"):
        return schema["enum"][-1]
    match schema.get("type"):
        case "object":
            needed = {*schema.get("required", ()), *REFERENCES, "command"}
            named = {one: of for one, of in schema.get("properties", {}).items() if one in needed}
            return {one: body_of(description, of, one, seen) for one, of in named.items()}
        case "array":
            item = body_of(description, schema.get("items", {"type": "string"}), name, seen)
            return [] if item is None else [item]
        case "integer" | "number":
            return max(schema.get("minimum", 1), 1)
        case "boolean":
            return False
        case _:
            return REFERENCES.get(name, TEXTS.get(name, "x1"))


def hostile(value: Any, name: str = "") -> Any:
    """Return an example body with references in the place of its own."""
    if isinstance(value, dict):
        return {one: hostile(inner, one) for one, inner in value.items()}
    if isinstance(value, list):
        return [hostile(inner, name) for inner in value]
    return REFERENCES.get(name, value) if isinstance(value, str) else value


def calls(description: dict[str, Any]) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield every method and path, with hostile bodies."""
    for path, item in description["paths"].items():
        for method in item.keys() & {"get", "post", "put", "patch", "delete"}:
            content = item[method].get("requestBody", {}).get("content", {}).get("application/json", {})
            examples = [hostile(one["value"]) for one in content.get("examples", {}).values()]
            schema = content.get("schema", {})
            bodies = [*examples, *([body_of(description, schema)] if schema.get("type") != "object" else [])]
            if f"{method.upper()} {path}" not in WAITING:
                yield method.upper(), path, bodies if content else [None]


def paths(method: str, path: str) -> Iterator[str]:
    """Yield a path with what the other namespace has in the place of its parameters; a PUT creates what it names."""
    names = re.findall(r"{(\w+)}", path)
    domain = next((one for part, one in DOMAINS.items() if part in path), "")
    ids = [id_ for kind, id_, _, _ in VAULT if kind.startswith(domain)]
    for one in ["x1"] if method == "PUT" else [*ids, "vault"] if {"id", "name"} & set(names) else ["vault"]:
        values = {"id": one, "name": one, **REFERENCES, **PATH}
        yield path.format(**{name: values.get(name, one) for name in names})


# --- tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", CALLERS)
async def test_no_route_leads_to_another_namespace(full: ServerHarness, who: str) -> None:
    description = (await full.get(f"{FAR}/docs/openapi.json")).json()
    before, caller, sent = await outside(full), full.caller(who), 0
    for method, path, bodies in calls(description):
        rule = GENERIC.get(f"{method} {path}") or rule_of(method, path)
        for filled in paths(method, path):
            for body in bodies:
                answer = await caller.request(method, f"{FAR}{filled}", json=body)
                sent += 1
                assert answer.status_code < 500, (method, filled, body, answer.text)
                assert MARK not in answer.text, (method, filled, body)
                if rule not in MAY[who] and rule != "our page":
                    assert answer.status_code == 403, (rule, method, filled, answer.text)
    assert sent > 500
    assert await outside(full) == before
    assert await references(full) == []


@pytest.mark.parametrize("who", ROLES)
async def test_no_action_and_no_creation_reaches_into_another_namespace(full: ServerHarness, who: str) -> None:
    """Copies of what the other namespace has are created here, and acted on with arguments that name the originals."""
    before, engine, actor = await outside(full), full.engine, ACTORS[ROLES[who]]
    named = {name: value for name, value in REFERENCES.items() if name != "parent"}
    arguments = [named, {"change": named}, {"machines": [{"connection": "cloud-vault", "native_id": "i-1"}]}]
    for kind, id_, _, spec in VAULT:
        copied = {name: "x" if MARK in str(value) else value for name, value in spec.items()}
        body = {"id": id_, "kind": kind, "spec": copied}
        for parent in (None, "account-vault", "site-vault", "mci-vault"):
            answer = await full.post(f"/ns/{NS}/objects", body | ({"parent": parent} if parent else {}), who)
            assert answer.status_code < 500, answer.text
            assert MARK not in answer.text
        for action in engine.kinds[kind].lifecycle.events:
            asked = [(f"objects/{id_}/actions/{action}", {"args": args}) for args in arguments]
            for path, ask in [*asked, (f"actions/{action}", {"objects": [id_], "args": named})]:
                answer = await full.post(f"/ns/{NS}/{path}", ask, who)
                assert answer.status_code < 500, (path, ask, answer.text)
                assert MARK not in answer.text
            with suppress(StatewardError):
                await engine.act(NS, id_, action, actor=actor, args=named)
    assert await outside(full) == before
