"""Who can cancel an operation and send it signals: callers that could have requested it."""

from collections.abc import AsyncIterator

import pytest

from stateward.engine import Job, Kind
from stateward.lifecycle import ADMIN, BACK, MINUTE, NEW, STABLE, TRANSITIONAL, USER, State, action, declare, step
from tests.integration.server.server_harness import NS, ServerHarness, open_server


class Vault(State):
    OPEN = "open", STABLE
    SEALING = "sealing", TRANSITIONAL
    CHECKING = "checking", TRANSITIONAL


def vault_kind() -> Kind:
    rows = (
        step(NEW, "build", USER, Vault.OPEN),
        action(Vault.OPEN, "seal", ADMIN, Vault.SEALING, BACK, BACK, MINUTE),
        action(Vault.OPEN, "check", USER, Vault.CHECKING, BACK, BACK, MINUTE),
    )
    kind = Kind(declare("test.vault", Vault, rows, USER | ADMIN))

    @kind.handles("seal")
    @kind.handles("check")
    async def wait(job: Job) -> None:
        await job.wait_for("go")

    return kind


@pytest.fixture
async def vaults() -> AsyncIterator[ServerHarness]:
    """A server with two vaults, whose operations wait for a signal."""
    async with open_server(also=[vault_kind()]) as harness:
        for name in ("v1", "v2"):
            assert (await harness.post(f"/ns/{NS}/objects", {"id": name, "kind": "test.vault"})).status_code == 202
        yield harness


async def operation(harness: ServerHarness, what: str, who: str) -> str:
    """Begin an operation, and return its id."""
    answer = await harness.post(f"/ns/{NS}/objects/v1/actions/{what}", {}, who)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["operation"]["id"])


@pytest.mark.parametrize("way", ["cancel", "signals/go", "cancel?parts=true"])
async def test_an_operator_does_not_interfere_with_what_only_administrators_can_request(
    vaults: ServerHarness, way: str
) -> None:
    op = await operation(vaults, "seal", "local admin")
    refused = await vaults.post(f"/ns/{NS}/operations/{op}/{way}", who="operator")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "'seal' of test.vault is not for the actor user" in refused.json()["detail"]
    shown = (await vaults.get(f"/ns/{NS}/operations/{op}")).json()
    assert shown["status"] in ("waiting", "running")
    assert (await vaults.post(f"/ns/{NS}/operations/{op}/{way}", who="local admin")).status_code == 202


@pytest.mark.parametrize("way", ["cancel", "signals/go"])
async def test_an_operator_interferes_with_what_every_user_can_request(vaults: ServerHarness, way: str) -> None:
    op = await operation(vaults, "check", "admin")
    assert (await vaults.post(f"/ns/{NS}/operations/{op}/{way}", who="operator")).status_code == 202
    await vaults.engine.wait_record(NS, op, 60)


async def test_an_operator_does_not_cancel_a_group_of_an_administrator(vaults: ServerHarness) -> None:
    chosen = {"selector": {"kind": "test.vault"}}
    begun = (await vaults.post(f"/ns/{NS}/actions/seal", chosen, "local admin")).json()
    group = begun["begun"][0]["operation"]["id"]
    refused = await vaults.post(f"/ns/{NS}/operations/{group}/cancel?parts=true", who="operator")
    assert refused.status_code == 403
    assert (await vaults.get(f"/ns/{NS}/operations/{group}")).json()["parts"].keys() <= {"waiting", "running"}


async def test_a_program_that_embeds_the_engine_cancels_and_signals_in_its_own_right(vaults: ServerHarness) -> None:
    first = await operation(vaults, "seal", "admin")
    await vaults.engine.signal(NS, first, "go")
    await vaults.engine.wait_record(NS, first, 60)
    second = await operation(vaults, "seal", "admin")
    await vaults.engine.cancel(NS, second)
    assert (await vaults.engine.wait_record(NS, second, 60)).status == "cancelled"
