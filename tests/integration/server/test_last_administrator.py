"""The last token that administers everything cannot be revoked, not even if two requests revoke the last two."""

import asyncio

import pytest

from stateward.access import Role
from stateward.access.tokens import LastAdministrator
from tests.integration.server.server_harness import NS, Answer, ServerHarness


def id_of(text: str) -> str:
    return text.split("_")[1]


async def revoke(site: ServerHarness, text: str) -> Answer:
    return await site.caller("admin").delete(f"/tokens/{id_of(text)}")


async def test_the_last_token_that_administers_everything_is_not_revoked(site: ServerHarness) -> None:
    answer = await revoke(site, site.texts["admin"])
    assert (answer.status_code, answer.json()["code"]) == (409, "last_administrator")
    assert "stateward token create NAME --role admin --ns '*'" in answer.json()["detail"]
    assert (await site.get("/tokens")).status_code == 200
    other, _ = await site.tokens.issue("next", Role.ADMIN, ["*"])
    assert (await revoke(site, site.texts["admin"])).status_code == 200
    async with site.client({"X-Auth-Token": other}) as client:
        assert (await client.get("/tokens")).status_code == 200


@pytest.mark.parametrize("who", ["viewer", "operator", "local admin", "reader"])
async def test_a_token_that_does_not_administer_everything_is_revoked_at_any_time(
    site: ServerHarness, who: str
) -> None:
    assert (await revoke(site, site.texts[who])).status_code == 200


async def test_a_token_that_ends_sooner_does_not_count_as_another_administrator(site: ServerHarness) -> None:
    now = await site.engine.store.reader.time()
    brief, _ = await site.tokens.issue("brief", Role.ADMIN, ["*"], now + 3600)
    assert (await revoke(site, site.texts["admin"])).status_code == 409
    assert (await revoke(site, brief)).status_code == 200, "the one that stays lasts longer"


async def test_administrators_whose_tokens_all_expire_can_still_take_turns(site: ServerHarness) -> None:
    now = await site.engine.store.reader.time()
    first, _ = await site.tokens.issue("first", Role.ADMIN, ["*"], now + 3600)
    await site.tokens.issue("second", Role.ADMIN, ["*"], now + 7200)
    await site.engine.act("(system)", f"token-{id_of(site.texts['admin'])}", "expire", actor="clock")
    assert (await site.tokens.revoke(id_of(first))).state == "revoked"


async def test_of_those_who_revoke_the_last_tokens_at_once_one_is_refused(site: ServerHarness) -> None:
    last = id_of(site.texts["admin"])
    for _ in range(10):
        (_, another) = await site.tokens.issue("another", Role.ADMIN, ["*"])
        verdicts = await asyncio.gather(
            site.tokens.revoke(another.id), site.tokens.revoke(last), return_exceptions=True
        )
        (refused,) = [one for one in verdicts if isinstance(one, BaseException)]
        assert isinstance(refused, LastAdministrator), refused
        last = refused.token


@pytest.mark.parametrize("named", [NS, "*", f":{NS}", f"{NS}:"])
async def test_the_token_of_an_agent_names_cloudlets(site: ServerHarness, named: str) -> None:
    before = len(await site.tokens.list())
    answer = await site.post("/tokens", {"name": "x", "role": "agent", "namespaces": [named]})
    assert (answer.status_code, answer.json()["field"][:10]) == (400, "namespaces")
    assert len(await site.tokens.list()) == before


@pytest.mark.parametrize("named", [f"{NS}:munich", f"{NS}:*"])
async def test_an_agent_speaks_for_one_cloudlet_or_explicitly_for_all_of_a_namespace(
    site: ServerHarness, named: str
) -> None:
    made = await site.post("/tokens", {"name": "x", "role": "agent", "namespaces": [named]})
    assert made.status_code == 201
    grant = await site.tokens.check(made.json()["token"])
    assert grant is not None
    assert grant.speaks_for(NS, "munich")
    assert grant.speaks_for(NS, "berlin") == named.endswith("*")
    assert not grant.speaks_for("other", "munich")


async def test_nobody_but_an_agent_is_for_all_cloudlets_of_a_namespace(site: ServerHarness) -> None:
    answer = await site.post("/tokens", {"name": "x", "role": "viewer", "namespaces": [f"{NS}:*"]})
    assert (answer.status_code, answer.json()["field"]) == (400, "namespaces")
