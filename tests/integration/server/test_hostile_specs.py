"""Every kind, state, action and role with a spec that nobody asked for: what each role reaches is what the tables say.

The kinds are those of all domains, and an object of each is stored in each of its states, so a new kind is tested
without a line here. The expectation is not the code that decides: it comes from the rows of the lifecycles, the actors
of the roles, and `Kind.spec_actions`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from msgspec.structs import replace

from stateward.access.roles import ACTORS, Role
from stateward.access.tokens import SYSTEM
from stateward.domains.mci.model import DEPLOYMENT_NS
from stateward.engine import Kind, Selector
from stateward.errors import BadInput, StatewardError
from stateward.lifecycle import TRANSITIONAL, Row
from stateward.lifecycle.actors import with_implied_actors
from stateward.store.changes import Changes
from stateward.store.filters import Page
from stateward.store.port import Tx
from stateward.store.records import Key, Object, to_json
from tests.integration.server.full_server import open_full_server
from tests.integration.server.server_harness import NS, OTHER, ServerHarness

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROLES = {"operator": Role.OPERATOR, "local admin": Role.ADMIN}
HOSTILE = {
    "name": "n1",
    "driver": "qemu",
    "backend": "container",
    "options": {"program": "/tmp/any-program"},
    "job": {"program": {"command": ["/bin/sh"], "secrets": {"PW": {"secret": "dbpw"}}}},
    "lease": {"ns": OTHER, "id": "theirs"},
    "account": "another",
    "end": 1e12,
}
STORED = {
    "ovc.vm": {"name": "n", "account": "a", "cloudspace": "c", "image": "i"},
    "ovc.disk": {"name": "n", "account": "a"},
}
"""The specs of stored objects whose kind reads them to find what it locks; all others are empty."""

OF_THE_DEPLOYMENT = ("access.quota", "mci.namespace", "mci.claim", "mci.call")
"""Kinds with neither a guard nor a type of specs: their objects are in namespaces that no path can name."""

AT_ONCE = 500
"""How many requests a plan has."""


class Case(NamedTuple):
    """An action on a stored object."""

    kind: Kind
    state: str
    action: str

    @property
    def object(self) -> str:
        return object_id(self.kind, self.state)

    @property
    def is_in_transition(self) -> bool:
        return self.kind.lifecycle.state(self.state).state_class is TRANSITIONAL

    @property
    def rows(self) -> list[Row]:
        """The rows of the table for this action in this state."""
        return [one for one in self.kind.lifecycle.rows if one.event == self.action and self.state in one.sources]

    @property
    def facts(self) -> list[str]:
        """All facts that one of the rows needs."""
        return sorted({fact for row in self.rows for fact in row.needs})

    def is_for(self, role: Role) -> bool:
        """Whether a row of the table gives the action to a role."""
        return any(ACTORS[role] in with_implied_actors(row.actors) for row in self.rows)


def object_id(kind: Kind, state: str) -> str:
    return f"{kind.name}.{[str(one) for one in kind.lifecycle.states].index(state)}"


def stored_states(kind: Kind) -> list[str]:
    """Return the states that an object can be in after it has been created."""
    return [str(one) for one in kind.lifecycle.states if one != kind.lifecycle.initial and not one.is_absent]


def cases(harness: ServerHarness) -> Iterator[Case]:
    """Yield every action on every stored object."""
    for kind in harness.engine.kinds:
        for state in stored_states(kind):
            yield from (Case(kind, state, event) for event in kind.lifecycle.events)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def full(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerHarness]:
    """The whole application without a worker, with an object of every kind in every state."""
    folder: Path = tmp_path_factory.mktemp("full")
    async with open_full_server(folder, worker=False) as harness:
        await harness.engine.store.transact(lambda tx: _store_objects(tx, harness))
        yield harness


async def _store_objects(tx: Tx, harness: ServerHarness) -> None:
    objects = [
        Object(ns, id_, kind.name, state, tx.now, 1, 1, None, id_, None, spec, "{}", None, tx.now)
        for ns in (NS, OTHER)
        for kind in harness.engine.kinds
        for state in stored_states(kind)
        for id_, spec in [(object_id(kind, state), to_json(STORED.get(kind.name, {})))]
    ]
    await tx.apply(Changes(objects=objects))


async def everything(harness: ServerHarness) -> dict[Key, Object]:
    """Return all stored objects, but for tokens and sessions."""
    reader = harness.engine.store.reader
    pages = [await reader.list_objects(Selector(ns), Page(None, 10_000)) for ns in (NS, OTHER)]
    return {one.key: one for page in pages for one in page}


async def planned(harness: ServerHarness, who: str, chosen: list[Case], **body: Any) -> list[dict[str, Any]]:
    """Return the verdicts on requests of a caller."""
    verdicts: list[dict[str, Any]] = []
    for first in range(0, len(chosen), AT_ONCE):
        requests = [
            {"object": one.object, "action": one.action, "facts": one.facts, **body}
            for one in chosen[first : first + AT_ONCE]
        ]
        answer = await harness.post(f"/ns/{NS}/plan", {"requests": requests}, who)
        assert answer.status_code == 200, answer.text
        verdicts += answer.json()
    return verdicts


@pytest.mark.parametrize("who", ROLES)
async def test_no_action_of_any_kind_takes_a_spec_unless_its_kind_declares_it(full: ServerHarness, who: str) -> None:
    chosen = [one for one in cases(full) if one.action not in one.kind.spec_actions]
    wrong = []
    for case, verdict in zip(chosen, await planned(full, who, chosen, spec=HOSTILE), strict=True):
        problem = verdict["problem"] or {}
        about_spec = (problem.get("code"), problem.get("field")) == ("bad_input", "spec")
        if verdict["would"] == "accept" or about_spec != case.is_for(ROLES[who]):
            wrong.append((case.kind.name, case.state, case.action, verdict))
    assert wrong == []
    assert sum(case.is_for(ROLES[who]) for case in chosen) > 150


@pytest.mark.parametrize("who", ROLES)
async def test_a_role_reaches_what_the_tables_give_it_and_nothing_else(full: ServerHarness, who: str) -> None:
    """Each action is planned alone on its object, so that none is decided on the changes of another."""
    chosen = [one for one in cases(full) if not one.is_for(ROLES[who]) or not one.is_in_transition]
    reached = set()
    while chosen:
        once = {one.object: one for one in chosen}
        verdicts = await planned(full, who, list(once.values()))
        reached |= {case for case, verdict in zip(once.values(), verdicts, strict=True) if verdict["would"] == "accept"}
        chosen = [one for one in chosen if once[one.object] is not one]
    assert [one for one in reached if not one.is_for(ROLES[who])] == []
    assert len(reached) > 50


@pytest.mark.parametrize("who", ROLES)
async def test_no_way_to_submit_a_request_brings_a_spec_in(full: ServerHarness, who: str) -> None:
    """Once for each kind and action: the general API, many objects at once, composites, sequences and the library."""
    role, before, engine = ROLES[who], await everything(full), full.engine
    chosen = {(one.kind.name, one.action): one for one in cases(full) if one.is_for(role)}
    for case in chosen.values():
        if case.action in case.kind.spec_actions:
            continue
        place = f"/ns/{NS}/objects/{case.object}/actions/{case.action}"
        body = {"spec": HOSTILE, "facts": case.facts}
        answer = await full.post(place, body, who)
        assert (answer.status_code, answer.json().get("field")) == (422, "spec"), (place, answer.text)
        preview = (await full.post(f"{place}/preview", body, who)).json()
        assert preview.get("problem", preview)["field"] == "spec", (place, preview)
        many = await full.post(f"/ns/{NS}/actions/{case.action}", {"objects": [case.object], **body}, who)
        assert (many.status_code, many.json()["field"]) == (400, "spec")
        asked = engine.request(NS, case.object, case.action, actor=ACTORS[role], spec=HOSTILE, facts=case.facts)
        ways = (engine.submit(asked), engine.submit_sequence([asked]))
        for refused in await asyncio.gather(*ways, return_exceptions=True):
            assert isinstance(refused, BadInput), (case.object, case.action, refused)
            assert refused.field == "spec"
        with pytest.raises(StatewardError, match="these actions take one"):
            await engine.group(None, Selector(NS, ids=(case.object,)), replace(asked, object=""))
    assert await everything(full) == before


@pytest.mark.parametrize("who", ROLES)
async def test_a_declared_action_takes_only_a_spec_that_its_kind_accepts(full: ServerHarness, who: str) -> None:
    before = await everything(full)
    for case in cases(full):
        if case.action not in case.kind.spec_actions or case.kind.name in OF_THE_DEPLOYMENT:
            continue
        path = f"/ns/{NS}/objects/{case.object}/actions/{case.action}"
        answer = await full.post(path, {"spec": HOSTILE, "facts": case.facts}, who)
        assert 400 <= answer.status_code < 500, (case, answer.text)
    assert await everything(full) == before


@pytest.mark.parametrize("who", ROLES)
async def test_no_path_names_a_namespace_of_the_deployment(full: ServerHarness, who: str) -> None:
    for ns in (SYSTEM, DEPLOYMENT_NS):
        for name in OF_THE_DEPLOYMENT:
            answer = await full.post(f"/ns/{ns}/objects/{name}.1/actions/change", {"spec": HOSTILE}, who)
            assert answer.status_code in (400, 403, 404), answer.text


@pytest.mark.parametrize(
    ("kind", "state", "action", "what"),
    [
        ("systems.job", "active", "suspend", "a program and the secrets of the namespace"),
        ("systems.job", "suspended", "resume", "a program and the secrets of the namespace"),
        ("leases.notice", "queued", "deliver", "the end of a lease of another namespace"),
        ("leases.lease", "ERROR", "recover", "an end that nobody planned"),
        ("leases.lease", "ACTIVE", "delete", "an end that nobody planned"),
        ("leases.host", "up", "fail", "fewer resources than are booked"),
        ("leases.host", "failed", "recover", "fewer resources than are booked"),
        ("edge.cloudlet", "Ready", "maintain", "another back end below the instances"),
        ("edge.cloudlet", "Maintenance", "upgrade", "another back end below the instances"),
        ("edge.cloudlet", "Maintenance", "resume", "another back end below the instances"),
        ("ovc.vm", "RUNNING", "stop", "another size and account"),
        ("ovc.account", "CONFIRMED", "disable", "a spec that cannot be read"),
    ],
)
async def test_an_operator_brings_in_nothing_with_the_actions_that_are_given_to_operators(
    full: ServerHarness, kind: str, state: str, action: str, what: str
) -> None:
    case, before = Case(full.engine.kinds[kind], state, action), await everything(full)
    assert case.is_for(Role.OPERATOR)
    body = {"spec": HOSTILE, "facts": case.facts}
    answer = await full.post(f"/ns/{NS}/objects/{case.object}/actions/{action}", body, "operator")
    assert (answer.status_code, answer.json()["field"]) == (422, "spec"), what
    assert await everything(full) == before
