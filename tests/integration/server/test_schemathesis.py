"""Whatever is thrown at the API, it answers as its description says, and never with an error of its own."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import schemathesis
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from litestar.types import Message, Receive, Scope, Send
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks

from stateward.access import Role
from tests.integration.server.house import NS, House, open_house

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
BRIEF = settings(
    max_examples=10,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
NOTHING_TO_SPOIL = {"GET /healthz", "GET /readyz"}
NEVER_WELL = {"POST /api/v1/ns/{ns}/operations/{op}/cancel", "DELETE /api/v1/tokens/{id}"}
"""What works only once, or on what is under way: other tests see to it."""


class Bridge:
    """The application, for a caller whose event loop is another one."""

    def __init__(self, house: House, portal: BlockingPortal, known: dict[str, str]) -> None:
        self.house, self.known = house, known
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

        await self.house.app(scope, receive, send)
        return said


async def _furnish(house: House) -> dict[str, str]:
    """Return the names of what there is to be found."""
    await house.built("web-1", labels={"tier": "web"})
    op = (await house.post(f"/ns/{NS}/objects/web-1/actions/pump?wait=30")).json()["operation"]["id"]
    _, spare = await house.tokens.issue("spare", Role.VIEWER, [NS])
    return {"ns": NS, "id": "web-1", "kind": "test.pump", "op": op, "action": "pump", "token": spare.id}


@pytest.fixture(scope="module")
def bridge() -> Iterator[Bridge]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(open_house()) as house:
        yield Bridge(house, portal, portal.call(_furnish, house))


def pointed(case: Any, known: dict[str, str]) -> None:
    """Point a call at what there is, so that it has something to do."""
    for name in case.path_parameters or {}:
        word = "token" if "tokens" in case.operation.path else name
        if word in known:
            case.path_parameters[name] = known[word]
    for part in (case.body, case.query):
        for name in ("kind", "object") if isinstance(part, dict) else ():
            if name in part:
                part[name] = known["kind" if name == "kind" else "id"]
        for name in ("not_before", "locks", "priority") if isinstance(part, dict) else ():
            part.pop(name, None)
    if case.headers:
        case.headers.pop("If-Match", None)


def tried(bridge: Bridge, operation: Any, mode: GenerationMode) -> Counter[int]:
    """Try an operation some times; returns how often it answered with what."""
    headers = {"Authorization": f"Bearer {bridge.house.texts['admin']}"}
    answers: Counter[int] = Counter()

    @BRIEF
    @given(case=operation.as_strategy(generation_mode=mode), at_home=st.sampled_from([True, True, False]))
    def check(case: Any, at_home: bool) -> None:
        if at_home and mode is GenerationMode.POSITIVE:
            pointed(case, bridge.known)
        answer = case.call_and_validate(headers=headers, checks=CHECKS)
        answers[answer.status_code] += 1

    check()
    return answers


def operations(bridge: Bridge) -> Iterator[Any]:
    schema = schemathesis.openapi.from_asgi("/docs/openapi.json", bridge)
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        yield result.ok()


def test_every_answer_to_a_good_request_is_described_and_most_are_good(bridge: Bridge) -> None:
    answers = {one.label: tried(bridge, one, GenerationMode.POSITIVE) for one in operations(bridge)}
    unwell = {label for label, seen in answers.items() if not any(status < 300 for status in seen)}
    assert unwell <= NEVER_WELL


def test_every_bad_request_is_refused_as_described(bridge: Bridge) -> None:
    answers = {
        one.label: tried(bridge, one, GenerationMode.NEGATIVE)
        for one in operations(bridge)
        if one.label not in NOTHING_TO_SPOIL
    }
    assert len(answers) > 30
