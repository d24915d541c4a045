"""Priorities: namespaces share lanes, so only an administrator of all namespaces may raise a priority."""

from typing import Any

import pytest

from stateward.access import Role
from tests.integration.server.server_harness import NS, ServerHarness

ABOVE = 1_000_000
PUMP = {"object": "p1", "action": "pump"}
ROUTES: dict[str, tuple[str, dict[str, Any], str]] = {
    #         path                             body, less its priority                     the field
    "act":    (f"/ns/{NS}/objects/p1/actions/pump", {},                                    "priority"),
    "group":  (f"/ns/{NS}/actions/pump",       {"selector": {"kind": "test.pump"}},        "priority"),
    "create": (f"/ns/{NS}/objects",            {"id": "p2", "kind": "test.pump", "action": "build"}, "priority"),
    "plan":   (f"/ns/{NS}/plan",               {},                                         "requests[1].priority"),
}  # fmt: skip


def body_of(route: str, priority: int) -> dict[str, Any]:
    """Return a body that asks for a priority."""
    if route == "plan":
        return {"requests": [PUMP, {**PUMP, "priority": priority}]}
    return {**ROUTES[route][1], "priority": priority}


@pytest.mark.parametrize("who", ["operator", "local admin", "operator of all"])
@pytest.mark.parametrize("route", ROUTES)
async def test_only_an_administrator_of_the_deployment_gives_a_priority_above_zero(
    harness: ServerHarness, route: str, who: str
) -> None:
    await harness.built()
    harness.texts["operator of all"] = (await harness.tokens.issue("oscar", Role.OPERATOR, ["*"]))[0]
    path, _, field = ROUTES[route]
    before = await harness.everything()
    answer = await harness.post(path, body_of(route, ABOVE), who=who)
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["field"]) == (403, "forbidden", field)
    assert f"{field}: {ABOVE} must be 0 or less" in problem["detail"]
    assert await harness.everything() == before


@pytest.mark.parametrize(("who", "priority"), [("operator", 0), ("operator", -ABOVE), ("admin", ABOVE)])
@pytest.mark.parametrize("route", ROUTES)
async def test_everybody_may_yield_and_an_administrator_may_overtake(
    harness: ServerHarness, route: str, who: str, priority: int
) -> None:
    await harness.built()
    answer = await harness.post(ROUTES[route][0], body_of(route, priority), who=who)
    assert answer.status_code in (200, 202), answer.text


async def test_a_refused_priority_does_not_use_up_its_idempotency_key(harness: ServerHarness) -> None:
    await harness.built()
    path, key = ROUTES["act"][0], {"Idempotency-Key": "k1"}
    assert (await harness.post(path, {"priority": 1}, who="operator", headers=key)).status_code == 403
    assert (await harness.post(path, {"priority": 0}, who="operator", headers=key)).status_code == 202
