"""Whatever is thrown at the API, it answers as its description says, and never with an error of its own.

The generic API is tried on a plant, where most good requests have something to do; the routes of the domains are tried
on the whole application. More is tried with STATEWARD_EXAMPLES=100 in the environment. To make an example takes longer
than to try it; `test_fuzz.py` and `test_fuzz_domains.py` try many more bad bodies in the same time.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, Literal

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from litestar.types import Message, Receive, Scope, Send

from stateward.access import Role
from stateward.store import open_store
from tests.integration.server.full_server import open_full_server
from tests.integration.server.server_harness import NS, ServerHarness, open_server
from tests.integration.server.test_rights import RULES
from tests.long_forms import in_long_form

CONFIG = {"checks": {"negative_data_rejection": {"expected-statuses": ["4xx"]}}}
"""Too large, too, is a refusal. That a server error is none is another check's matter."""

GOOD, BAD, OF_DOMAINS = (int(os.environ.get("STATEWARD_EXAMPLES", usual)) for usual in (3, 1, 1))
BRIEF = settings(
    max_examples=GOOD,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
SPIDER = "/spider"
"""Few routes, which Tumblebug's clients ask before those of `/tumblebug`."""

DOMAINS = ("/tumblebug", "/api/v1/mci", "/api/v1/ovc", "/blazar", "/api/v1/edge", "/api/v1/systems")
AGAIN = "/ns/{ns}/blazar"
"""The same routes once more, for a namespace that the path names."""

OF_THE_CONSOLE = ["GET /api/v1/me", "GET /api/v1/ns/{ns}/map"]
PATIENT = 200.0
NEVER_WELL = {
    "POST /api/v1/ns/{ns}/operations/{op}/cancel",
    "POST /api/v1/ns/{ns}/operations/{op}/signals/{name}",
    "POST /api/v1/ns/{ns}/objects/{id}/forget",
    "DELETE /api/v1/tokens/{id}",
    "POST /api/v1/ns/{ns}/actions/{action}",
    "POST /api/v1/ns/{ns}/actions/{action}/preview",
    "POST /api/v1/session",
    "DELETE /api/v1/session",
}
"""What works only once, on what is under way, or on kinds that nobody knows: other tests see to it."""


class Bridge:
    """The application, for a caller whose event loop is another one."""

    def __init__(self, harness: ServerHarness, portal: BlockingPortal, known: dict[str, str]) -> None:
        self.harness, self.known = harness, known
        self._portal = portal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if str(scope["type"]) == "lifespan":
            return
        messages: list[Any] = [await receive()]
        while messages[-1].get("more_body"):
            messages.append(await receive())
        said: Future[list[Message]] = self._portal.start_task_soon(self._answer, scope, messages)
        for message in await asyncio.wrap_future(said):
            await send(message)

    async def _answer(self, scope: Scope, messages: list[Any]) -> list[Message]:
        said: list[Message] = []

        async def receive() -> Any:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            said.append(message)

        await self.harness.app(scope, receive, send)
        return said


async def _furnish(harness: ServerHarness) -> dict[str, str]:
    """Return the names of what there is to be found."""
    await harness.built("web-1", labels={"tier": "web"})
    op = (await harness.post(f"/ns/{NS}/objects/web-1/actions/pump?wait=30")).json()["operation"]["id"]
    _, spare = await harness.tokens.issue("spare", Role.VIEWER, [NS])
    known = {"ns": NS, "id": "web-1", "kind": "test.pump", "op": op, "action": "pump", "token": spare.id}
    return {**known, "name": "mci"}


@pytest.fixture(scope="module")
def bridge(database: str) -> Iterator[Bridge]:
    store = open_store(database or ":memory:", migrate=True)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(open_server(store)) as harness:
        yield Bridge(harness, portal, portal.call(_furnish, harness))


async def _populate(harness: ServerHarness) -> dict[str, str]:
    """Make something in every domain; return the names of what there is to be found."""
    at = "http://test"
    group = {"name": "web", "subGroupSize": 2, "specId": "aws+ap-northeast-2+t3.micro", "imageId": "ubuntu22.04"}
    made = [
        await harness.post(f"{at}/tumblebug/ns", {"name": NS}),
        await harness.post(f"{at}/tumblebug/ns/{NS}/mciDynamic", {"name": "m1", "subGroups": [group]}),
        await harness.post(f"{at}/api/v1/ovc/{NS}/accounts", {"name": "acme"}),
        await harness.post(f"{at}/api/v1/edge/ns/{NS}/cloudlets", {"name": "c1"}),
        await harness.post(f"{at}/api/v1/systems/{NS}", {"name": "s1", "backend": "simulated"}),
        await harness.post(f"{at}/blazar/v1/os-hosts", {"name": "h1", "vcpus": 4}),
    ]
    assert [one.status_code for one in made] == [200, 200, 202, 202, 202, 201], [one.text for one in made]
    account = made[2].json()["object"]["id"]
    names = {"mci": "m1", "vm": "web-1", "group": "web", "cloudlet": "c1", "system": "s1", "host_id": "h1"}
    return {"ns": NS, "id": account, **names}


@pytest.fixture(scope="module")
def full_server(tmp_path_factory: pytest.TempPathFactory, database: str) -> Iterator[Bridge]:
    folder = tmp_path_factory.mktemp("full_server")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(open_full_server(folder, database)) as harness,
    ):
        yield Bridge(harness, portal, portal.call(_populate, harness))


@pytest.fixture(scope="module")
def described(full_server: Bridge) -> list[Any]:
    return list(operations(full_server))


def pointed(case: Any, known: dict[str, str]) -> None:
    """Point a call at what there is, so that it has something to do."""
    for name in case.path_parameters or {}:
        word = "token" if "tokens" in case.operation.path else name
        if word in known:
            case.path_parameters[name] = known[word]
    for part in (case.body, case.query):
        for name in ("kind", "object") if isinstance(part, dict) else ():
            if name in part:
                part[name] = known.get("kind" if name == "kind" else "id", part[name])
        for name in ("not_before", "locks", "priority") if isinstance(part, dict) else ():
            part.pop(name, None)
    if case.headers:
        case.headers.pop("If-Match", None)
    content = case.operation.definition.raw.get("requestBody", {}).get("content", {}).get("application/json", {})
    if "examples" in content and isinstance(case.body, dict):
        case.body = {**content["examples"]["example"]["value"], **case.body}


def tried(bridge: Bridge, operation: Any, mode: Literal["positive", "negative"], examples: int = GOOD) -> Counter[int]:
    """Try an operation some times; returns how often it answered with what."""
    from schemathesis import GenerationMode

    headers = {"Authorization": f"Bearer {bridge.harness.texts['admin']}"}
    answers: Counter[int] = Counter()

    @settings(BRIEF, max_examples=examples)
    @given(
        case=operation.as_strategy(generation_mode=GenerationMode(mode)), at_home=st.sampled_from([True, True, False])
    )
    def check(case: Any, at_home: bool) -> None:
        if at_home and mode == "positive":
            pointed(case, bridge.known)
        answer = case.call_and_validate(headers=headers, checks=_checks(), timeout=PATIENT)
        answers[answer.status_code] += 1

    check()
    return answers


def _checks() -> list[Any]:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    return [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
        checks.negative_data_rejection,
    ]


def operations(bridge: Bridge) -> Iterator[Any]:
    import schemathesis
    from schemathesis.core.result import Ok

    config = schemathesis.Config.from_dict(CONFIG)
    schema = schemathesis.openapi.from_asgi("/docs/openapi.json", bridge, timeout=PATIENT, config=config)
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        yield result.ok()


def test_every_answer_to_a_good_request_is_described_and_most_are_good(bridge: Bridge) -> None:
    answers = {one.label: tried(bridge, one, "positive") for one in operations(bridge)}
    unwell = {label for label, seen in answers.items() if not any(status < 300 for status in seen)}
    assert unwell <= NEVER_WELL


def test_every_bad_request_is_refused_as_described(bridge: Bridge) -> None:
    found = [one for one in operations(bridge) if _has_input(one)]
    for one in found:
        tried(bridge, one, "negative", BAD)
    assert len(found) > 30


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_routes_of_a_domain_answer_as_they_are_described(
    full_server: Bridge, described: list[Any], domain: str
) -> None:
    for one in routes_of(domain, described):
        tried(full_server, one, "positive", OF_DOMAINS)


@pytest.mark.parametrize("domain", in_long_form(DOMAINS, short=("/api/v1/systems",)))
def test_the_routes_of_a_domain_refuse_bad_requests_as_they_are_described(
    full_server: Bridge, described: list[Any], domain: str
) -> None:
    for one in filter(_has_input, routes_of(domain, described)):
        tried(full_server, one, "negative", OF_DOMAINS)


def routes_of(domain: str, described: list[Any]) -> list[Any]:
    found = [one for one in described if _domain(one.path) == domain and one.label not in RULES]
    assert len(found) > 5
    return found


def test_every_route_of_the_domains_is_tried(described: list[Any]) -> None:
    others = [one.label for one in described if one.label not in RULES and _domain(one.path) not in DOMAINS]
    assert [one for one in others if not one.split(" ")[1].startswith((AGAIN, SPIDER))] == OF_THE_CONSOLE


def _domain(path: str) -> str:
    return next((name for name in DOMAINS if path.startswith(name)), "")


def _has_input(operation: Any) -> bool:
    """Tell whether there is anything that can be wrong in a request."""
    raw = operation.definition.raw
    return bool(raw.get("parameters")) or "requestBody" in raw
