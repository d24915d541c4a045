"""Tokens appear in no response and no log line, and every refused attempt is audited."""

import logging
import re
from base64 import b64encode

import pytest

from tests.integration.server.server_harness import NS, ServerHarness


def messages(caplog: pytest.LogCaptureFixture) -> str:
    """Return everything that was logged, with all that the records carry."""
    return "\n".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)


async def misuse(harness: ServerHarness, text: str) -> list[str]:
    """Put a token wherever one can be put by mistake; returns the bodies of all answers."""
    admin = harness.caller("admin")
    key = {"Idempotency-Key": text}
    answers = [
        await admin.get(f"/ns/{NS}/objects/{text}"),
        await admin.get(f"/ns/{text}/objects"),
        await admin.get(f"/kinds/{text}"),
        await admin.get(f"/journal?ns={text}"),
        await admin.get(f"/ns/{NS}/operations/{text}"),
        await admin.delete(f"/tokens/{text}"),
        await admin.post(f"/ns/{NS}/objects/p1/actions/{text}"),
        await admin.post(f"/ns/{NS}/objects", json={"id": text, "kind": text}),
        await admin.post(f"/ns/{NS}/objects", json={text: 1}),
        await admin.post(f"/ns/{NS}/objects", json={"id": "a", "kind": "test.pump", "action": text}),
        await admin.post(f"/ns/{NS}/plan", json={"requests": [{"object": text, "action": text}]}),
        await admin.post(f"/ns/{NS}/objects/p1/actions/pump?wait=30", headers=key),
        await admin.post(f"/ns/{NS}/objects/p1/actions/tune", headers=key),
        await admin.post(f"/ns/{NS}/objects/p1/actions/pump", json={"locks": [{"path": f"/{text}/..", "mode": "X"}]}),
        await admin.post("/tokens", json={"name": "x", "role": text, "namespaces": ["a"]}),
        await admin.put(f"/ns/{NS}/objects/p1/labels", json={"labels": {"a": "b"}}, headers={"If-Match": f'"{text}"'}),
        await admin.get(f"/{text}"),
        await harness.get(f"/ns/{text}/objects", "viewer"),
        await harness.get("/tokens", "viewer"),
    ]
    for headers in ({"Authorization": f"Bearer {text}x"}, {"X-Auth-Token": f"{text}x"}, _basic(f"{text}x")):
        async with harness.client(headers) as client:
            answers.append(await client.get("/kinds"))
    assert [one.status_code for one in answers if one.status_code >= 500] == []
    assert sum(one.status_code >= 400 for one in answers) >= len(answers) - 3, [one.status_code for one in answers]
    return [one.text for one in answers if one.status_code >= 400]


def _basic(text: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(f'me:{text}'.encode()).decode()}"}


async def test_no_token_appears_in_logs_journal_or_errors(
    harness: ServerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="stateward")
    await harness.built()
    text = harness.texts["admin"]
    bodies = await misuse(harness, text)
    journal = (await harness.get("/journal?limit=1000")).text
    export = (await harness.get("/journal", headers={"Accept": "application/x-ndjson"})).text
    listings = [
        (await harness.get(path)).text for path in ("/tokens", "/quotas", "/workers", "/stuck", "http://test/metrics")
    ]
    secrets = [one.split("_", 2)[2] for one in harness.texts.values()]
    for place in (*bodies, journal, export, *listings, messages(caplog)):
        assert not [secret for secret in secrets if secret in place], place


@pytest.mark.parametrize(
    ("who", "path", "status"),
    [("nobody", "/kinds", 401), ("viewer", "/tokens", 403), ("outsider", f"/ns/{NS}/objects", 403)],
)
async def test_every_refused_attempt_is_audited(
    harness: ServerHarness, caplog: pytest.LogCaptureFixture, who: str, path: str, status: int
) -> None:
    assert (await harness.get(path, who)).status_code == status
    (record,) = [one for one in caplog.records if one.name == "stateward.audit"]
    facts = vars(record)
    assert (facts["status"], facts["method"]) == (status, "GET")
    assert facts["route"] == f"/api/v1{path.replace(NS, '{ns}')}"
    assert facts["token"] == (None if who == "nobody" else harness.texts[who].split("_")[1])
    assert facts["ns"] == (NS if NS in path else None)


async def test_a_name_in_a_path_forges_no_line_of_the_audit_log(
    harness: ServerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    assert (
        await harness.get("/ns/y%0a12:00:00%20warning%20refused:%20forged%1b[2J/objects", "nobody")
    ).status_code == 401
    (record,) = [one for one in caplog.records if one.name == "stateward.audit"]
    assert record.getMessage().isprintable()
    assert "forged" in record.getMessage()


async def test_a_token_that_knocks_too_often_is_audited(
    harness: ServerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.app.state.service.authenticator._rate_limiter._rate = 1
    assert [(await harness.get("/kinds")).status_code for _ in range(2)] == [200, 429]
    assert [vars(one)["status"] for one in caplog.records if one.name == "stateward.audit"] == [429]


async def test_an_attempt_with_a_wrong_token_is_audited_by_the_id_it_claims(
    harness: ServerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    async with harness.client({"X-Auth-Token": "sw_0123456789ab_guess"}) as client:
        await client.get("/kinds")
    async with harness.client({"X-Auth-Token": "my password"}) as client:
        await client.get("/kinds")
    audited = [vars(one)["token"] for one in caplog.records if one.name == "stateward.audit"]
    assert audited == ["0123456789ab", None]
    assert "password" not in messages(caplog)


async def test_an_error_that_nobody_expected_is_logged_and_not_told(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("the secret plan is 42")

    monkeypatch.setattr(type(harness.engine), "record", broken)
    answer = await harness.get(f"/ns/{NS}/objects/p1")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "42" not in answer.text
    assert any(record.exc_info for record in caplog.records)


async def test_nothing_that_is_kept_of_a_token_looks_like_one(harness: ServerHarness) -> None:
    kept = [await harness.engine.record("(system)", f"token-{text.split('_')[1]}") for text in harness.texts.values()]
    assert not [one for one in kept if re.search(r"sw_[0-9a-f]+_", one.spec)]
