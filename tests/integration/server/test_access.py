"""Tokens and quotas over HTTP, with their journal entries."""

import csv
from io import StringIO
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from stateward.access import Role
from stateward.access.tokens import SYSTEM
from stateward.config import Config
from stateward.engine import Permanent
from stateward.errors import BadInput
from tests.integration.server.server_harness import NS, ServerHarness, open_server

WISH = {"name": "ann", "role": "operator", "namespaces": [NS]}


async def test_a_token_is_told_once_and_opens_what_it_is_for(harness: ServerHarness) -> None:
    answer = await harness.post("/tokens", WISH)
    assert answer.status_code == 201
    harness.texts["ann"] = answer.json()["token"]
    assert answer.json()["info"] | {"id": "", "created": ""} == WISH | {
        "id": "",
        "created": "",
        "state": "active",
        "expires": None,
    }
    assert (await harness.get(f"/ns/{NS}/objects", "ann")).status_code == 200
    listed = (await harness.get("/tokens")).text
    assert harness.texts["ann"].split("_", 2)[2] not in listed
    assert "digest" not in listed


async def test_a_token_that_is_taken_back_is_listed_as_revoked(harness: ServerHarness) -> None:
    made = (await harness.post("/tokens", WISH)).json()["info"]
    taken = await harness.caller("admin").delete(f"/tokens/{made['id']}")
    assert (taken.status_code, taken.json()["state"]) == (200, "revoked")
    again = await harness.caller("admin").delete(f"/tokens/{made['id']}")
    assert (again.status_code, again.json()["code"]) == (409, "final_state")
    states = {one["id"]: one["state"] for one in (await harness.get("/tokens")).json()}
    assert states[made["id"]] == "revoked"


async def test_a_token_may_expire(harness: ServerHarness) -> None:
    made = (await harness.post("/tokens", WISH | {"expires": "2199-01-01T00:00:00+01:00"})).json()["info"]
    assert made["expires"] == "2198-12-31T23:00:00Z"


@pytest.mark.parametrize("name", ["", "a" * 201])
async def test_a_token_has_a_name_of_at_most_200_characters(harness: ServerHarness, name: str) -> None:
    with pytest.raises(BadInput) as refused:
        await harness.tokens.issue(name, Role.OPERATOR, [NS])
    assert refused.value.field == "name"
    await harness.tokens.issue("a" * 200, Role.OPERATOR, [NS])


async def test_a_token_is_invalid_from_its_expiry_on_though_its_timer_is_late(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    expires = await harness.engine.store.reader.time() + 60
    text, info = await harness.tokens.issue("brief", Role.AGENT, [f"{NS}:munich"], expires)
    assert await harness.tokens.check(text) is not None
    monkeypatch.setattr(harness.engine.store.reader, "time", AsyncMock(return_value=expires))
    assert await harness.tokens.check(text) is None
    assert await harness.tokens.grant_of(info.id) is None


async def test_a_time_beyond_all_that_can_be_told_is_told_as_the_last_one(harness: ServerHarness) -> None:
    made = await harness.post("/tokens", WISH | {"expires": "9999-12-31T23:59:59-23:00"})
    assert (made.status_code, made.json()["info"]["expires"]) == (201, "9999-12-31T23:59:59.999999Z")
    assert (await harness.get("/tokens")).status_code == 200


async def test_all_tokens_and_quotas_are_listed_however_short_a_page_is() -> None:
    async with open_server(config=Config(page_limit=2)) as harness:
        for number in range(3):
            await harness.put(f"/quotas/{number}", {"operations": number})
        assert {one["name"] for one in (await harness.get("/tokens")).json()} >= {"ada", "vic", "olga", "007"}
        assert [one["ns"] for one in (await harness.get("/quotas")).json()] == ["0", "1", "2"]


async def test_every_issue_and_revocation_stands_in_the_journal_without_the_digest(
    harness: ServerHarness,
) -> None:
    made = (await harness.post("/tokens", WISH)).json()["info"]
    await harness.caller("admin").delete(f"/tokens/{made['id']}")
    lines = (await harness.get(f"/journal?ns={SYSTEM}&object=token-{made['id']}")).json()["items"]
    assert [(line["event"], line["who"], line["spec"]) for line in lines] == [
        ("issue", "ada", None),
        ("revoke", "ada", None),
    ]


async def test_a_quota_is_set_changed_and_listed(harness: ServerHarness) -> None:
    first = {"objects": {"test.pump": 3}, "operations": 5}
    assert (await harness.put(f"/quotas/{NS}", first)).json() == {"ns": NS, **first}
    await harness.put("/quotas/bank", {"operations": 1})
    second: dict[str, Any] = {"objects": {}, "operations": None}
    assert (await harness.put(f"/quotas/{NS}", second)).json() == {"ns": NS, **second}
    assert (await harness.get("/quotas")).json() == [
        {"ns": "bank", "objects": {}, "operations": 1},
        {"ns": NS, **second},
    ]
    events = [line["event"] for line in (await harness.get(f"/journal?object=quota-{NS}")).json()["items"]]
    assert events == ["set", "change"]


async def test_the_journal_is_filtered(harness: ServerHarness) -> None:
    await harness.built("p1")
    await harness.built("p2", labels={})
    lines = (await harness.get("/journal?ns=shop")).json()["items"]
    op = lines[0]["op"]
    for query, expected in (
        ("object=p2", 2),
        ("kind=test.pump", 4),
        ("kind=ovc.vm", 0),
        (f"op={op}", 2),
        ("actor=admin", 2),
        ("since=2199-01-01T00:00:00Z", 0),
        ("until=2000-01-01T00:00:00Z", 0),
        (f"after={lines[-1]['seq']}", 0),
        (f"since={lines[2]['at']}", 2),
        (f"until={lines[2]['at']}", 2),
    ):
        found = (await harness.get(f"/journal?ns=shop&{query}")).json()["items"]
        assert len(found) == expected, query


async def test_the_journal_is_exported_as_one_object_in_each_line(harness: ServerHarness) -> None:
    for number in range(3):
        await harness.built(f"p{number}")
    paged = (await harness.get("/journal?ns=shop&limit=1000")).json()["items"]
    answer = await harness.get("/journal?ns=shop&limit=1", headers={"Accept": "application/x-ndjson"})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert [msgspec.json.decode(line) for line in answer.text.splitlines()] == paged


async def test_the_journal_is_exported_as_a_table_without_formulas(harness: ServerHarness) -> None:
    await harness.built("p0")
    harness.plant.fail("tune", Permanent('=cmd|"/c calc"!A1, and\nmore'))
    await harness.post("/ns/shop/objects/p0/actions/tune?wait=30", {"spec": {"litres": 5}})
    paged = (await harness.get("/journal?ns=shop&object=p0&limit=1000")).json()["items"]
    answer = await harness.get("/journal?ns=shop&object=p0", headers={"Accept": "text/csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(StringIO(answer.text)))
    assert [(one["seq"], one["at"], one["event"]) for one in rows] == [
        (str(one["seq"]), one["at"], one["event"]) for one in paged
    ]
    assert rows[-1]["reason"] == "'" + paged[-1]["reason"]
    assert any(one["spec"] == '{"litres":5}' for one in rows)


COUNTS = ("count_states", "count_by_namespace", "count_groups")


async def test_namespaces_are_counted_by_one_read(harness: ServerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    for ns in ("bank", "shop"):
        await harness.built("p1", ns)
    counts = {name: AsyncMock(wraps=getattr(harness.engine.store.reader, name)) for name in COUNTS}
    for name, count in counts.items():
        monkeypatch.setattr(harness.engine.store.reader, name, count)
    assert {one["ns"] for one in (await harness.get("/namespaces")).json()} >= {"bank", "shop"}
    assert sum(count.await_count for count in counts.values()) == 1
