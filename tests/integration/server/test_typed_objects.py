"""Typed specs and arguments over HTTP: what does not fit is refused, and secrets are in no response."""

import logging
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct

from stateward.access import Role
from stateward.engine import Kind, Permanent
from stateward.plugin.runtime import DomainRuntime
from stateward.server.live.feeds import encode_entry
from stateward.store import open_store
from stateward.store.filters import JournalFilter
from stateward.store.records import Key, Timer
from tests.integration.engine.record_kinds import RECORD, SECRET, RecordWork
from tests.integration.server.server_harness import NS, ServerHarness, open_server
from tests.readable_routes import READERS, ReadableApp, open_to_readers, readable_paths
from tests.stores import fresh_store


class HostSpec(Struct):
    """The next version of a record's spec."""

    host: str
    key: Annotated[str, Meta(extra_json_schema=SECRET)] | None = None


WWW = {"id": "www", "kind": "dns.record", "spec": {"address": "192.0.2.1"}}
SECRETS = ("hush-hush", "t0k3n")
LOGIN = {"user": "ann", "password": "hush-hush"}


@pytest.fixture
def work() -> RecordWork:
    return RecordWork()


@pytest.fixture
async def site(work: RecordWork) -> AsyncIterator[ServerHarness]:
    async with open_server(also=[work.kind()]) as opened:
        yield opened


async def made(site: ServerHarness, **spec: Any) -> None:
    """Make a record and wait until it is there."""
    answer = await site.post(f"/ns/{NS}/objects", {**WWW, "spec": {**WWW["spec"], **spec}}, "operator")  # type: ignore[dict-item]
    assert answer.status_code == 202, answer.text
    await site.ended(answer)


async def test_a_spec_is_shown_with_its_defaults(site: ServerHarness) -> None:
    await made(site)
    shown = (await site.get(f"/ns/{NS}/objects/www")).json()["spec"]
    assert shown == {"address": "192.0.2.1", "type": "A", "ttl": 300, "tags": [], "login": None}


@pytest.mark.parametrize(
    ("path", "body", "field", "detail"),
    [
        (f"/ns/{NS}/objects", {**WWW, "id": "b", "spec": {}}, "spec.address", "must be given"),
        (f"/ns/{NS}/objects", {"id": "b", "kind": "dns.record"}, "spec.address", "must be given"),
        (f"/ns/{NS}/objects", {**WWW, "id": "b", "spec": {"address": "1", "ttl": 0}}, "spec.ttl", "must be at least 1"),
        (f"/ns/{NS}/objects/www/actions/change", {"args": {"ttl": 0}}, "args.ttl", "must be at least 1"),
        (f"/ns/{NS}/objects/www/actions/touch", {"args": {"ttl": 1}}, "args", "must be left out: touch takes no"),
        (f"/ns/{NS}/actions/change", {"selector": {"kind": "dns.record"}, "args": {"ttl": 0}}, "args.ttl", "least 1"),
    ],
)
async def test_what_does_not_fit_its_type_is_refused_with_its_field(
    site: ServerHarness, path: str, body: dict[str, Any], field: str, detail: str
) -> None:
    await made(site)
    before = await site.everything()
    refused = await site.post(path, body, "operator")
    told = refused.json()
    assert (refused.status_code, told["code"], told["field"]) == (422, "bad_input", field)
    assert detail in told["detail"]
    assert await site.everything() == before


async def test_a_misspelt_field_is_told_with_the_nearest_one(site: ServerHarness) -> None:
    await made(site)
    told = (await site.post(f"/ns/{NS}/objects/www/actions/change", {"args": {"tokn": "t0k3n"}})).json()
    assert (told["field"], told["nearest"], told["known"]) == ("args.tokn", "token", ["ttl", "token"])
    assert "t0k3n" not in str(told)


async def test_a_refusal_under_a_key_is_repeated_as_it_was(site: ServerHarness) -> None:
    body, key = {**WWW, "spec": {"address": "192.0.2.1", "ttl": 0}}, {"Idempotency-Key": "k"}
    answers = [await site.post(f"/ns/{NS}/objects", body, headers=key) for _ in range(2)]
    assert [one.status_code for one in answers] == [422, 422]
    assert answers[0].json()["detail"] == answers[1].json()["detail"]


async def test_a_plan_tells_what_does_not_fit(site: ServerHarness) -> None:
    await made(site)
    body = {"requests": [{"object": "www", "action": "change", "args": {"ttl": 0}}]}
    (told,) = (await site.post(f"/ns/{NS}/plan", body)).json()
    assert (told["problem"]["status"], told["problem"]["field"]) == (422, "args.ttl")


async def test_wrong_secrets_are_not_repeated(site: ServerHarness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="stateward")
    for login in ({"user": "ann", "password": "h!s"}, {"user": 5, "password": "hush-hush"}, "hush-hush"):
        refused = await site.post(f"/ns/{NS}/objects", {**WWW, "spec": {"address": "192.0.2.1", "login": login}})
        assert refused.status_code == 422
        assert "h!s" not in refused.text
        assert "hush" not in refused.text
    spec = {"address": "0.0.0.0", "login": LOGIN}
    refused = await site.post(f"/ns/{NS}/objects", {**WWW, "spec": spec})
    assert refused.json()["detail"] == "spec: must be an address that ann/*** may use"
    assert "hush" not in "\n".join(f"{one.getMessage()} {vars(one)}" for one in caplog.records)


async def test_a_mask_is_not_taken_for_a_secret(site: ServerHarness) -> None:
    await made(site, login=LOGIN)
    shown = (await site.get(f"/ns/{NS}/objects/www")).json()["spec"]
    assert shown["login"] == {"user": "ann", "password": "***"}
    refused = await site.post(f"/ns/{NS}/objects/www/actions/change", {"args": {"token": "***"}})
    assert (refused.status_code, refused.json()["field"]) == (422, "args.token")


async def test_quotas_and_metrics_are_for_any_kind(site: ServerHarness) -> None:
    await site.put(f"/quotas/{NS}", {"objects": {"dns.record": 1}})
    await made(site)
    refused = await site.post(f"/ns/{NS}/objects", {**WWW, "id": "second"})
    assert (refused.status_code, refused.json()["code"]) == (403, "quota")
    metrics = (await site.get("http://test/metrics")).text
    assert 'stateward_objects{kind="dns.record",state="served"} 1.0' in metrics


async def test_an_object_whose_spec_cannot_be_upgraded_is_listed_shown_and_deleted(
    request: pytest.FixtureRequest, work: RecordWork
) -> None:
    new_store = fresh_store("sqlite", request)

    def upgrade(spec: dict[str, Any], _version: int) -> dict[str, Any]:
        return {"host": spec["name"]}

    async with open_server(new_store(), also=[work.kind()]) as site:
        await made(site)
    handlers = dict(work.kind().handlers)
    kind = Kind(RECORD, handlers, spec=HostSpec, spec_actions=("change",), spec_version=2, upgrade=upgrade)
    async with open_server(new_store(), also=[kind]) as site:
        why = "the stored spec, of version 1, cannot be read: its upgrade to version 2 failed"
        for path in (f"/ns/{NS}/objects/www", f"/ns/{NS}/objects", f"/ns/{NS}/objects/www/history", "/journal"):
            answer = await site.get(path)
            assert answer.status_code == 200
            assert "192.0.2.1" not in answer.text  # the kind has secrets, and nobody knows which fields were
            assert (why in answer.text) is ("/objects" in path and "history" not in path)
        failed = (await site.post(f"/ns/{NS}/objects/www/actions/touch?wait=30")).json()["operation"]
        assert (failed["status"], why in failed["error"]) == ("failed", True)
        work.reads = False
        deleted = await site.post(f"/ns/{NS}/objects/www/actions/delete?wait=30")
        assert deleted.json()["operation"]["status"] == "succeeded"


# --- secrets ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def readable(work: RecordWork) -> AsyncIterator[ReadableApp]:
    """Records with secrets: created, changed, changed in vain; and a timer with a secret."""
    async with open_to_readers(open_store(":memory:"), DomainRuntime([work.kind()]), NS) as served:
        engine = served.engine
        spec = {"address": "192.0.2.1", "login": LOGIN}

        async def ended(accepted: Any) -> None:
            await engine.wait(NS, accepted.op.id, 30)

        await ended(await engine.create(NS, "www", "dns.record", spec=spec))
        work.result = ["user ann, password hush-hush, at ns", {"t0k3n": 1}, "t0k3n, and so on", 5]
        await ended(await engine.act(NS, "www", "change", spec={**spec, "ttl": 5}, args={"token": "t0k3n"}))
        work.error = Permanent("ann/hush-hush with t0k3n was refused")
        await ended(await engine.act(NS, "www", "change", args={"token": "t0k3n"}))
        await engine.set_timer(Timer(NS, "later", 4e9, 0, "www", "change", "[]", '{"token":"t0k3n"}'))
        yield served


@pytest.mark.parametrize("role", READERS)
async def test_no_response_has_a_secret(readable: ReadableApp, role: Role) -> None:
    reader = readable.engine.store.reader
    paths = await readable_paths(readable.app, reader, NS)
    assert len(paths) > 10
    for path in paths:
        for accept in ("application/json", "application/x-ndjson", "text/csv"):
            shown = (await readable.clients[role].get(path, headers={"Accept": accept})).text
            assert not [one for one in SECRETS if one in shown], (path, shown)
    timers = (await readable.clients[role].get(f"/api/v1/ns/{NS}/timers")).json()
    assert [one["args"] for one in timers] == [{"token": "***"}]


@pytest.mark.parametrize("role", READERS)
async def test_results_are_masked_and_results_of_steps_are_hidden(readable: ReadableApp, role: Role) -> None:
    shown = (await readable.clients[role].get(f"/api/v1/ns/{NS}/operations?object=www")).json()["items"]
    found = [one for one in shown if one["status"] == "succeeded" and one["action"] == "change"]
    assert [one["steps"] for one in found] == [{"login": "***"}]
    assert [one["result"] for one in found] == [["user ann, password ***, at ns", {"***": 1}, "***, and so on", 5]]
    stored = await readable.engine.store.reader.operation(Key(NS, found[0]["id"]))
    assert stored is not None
    assert "hush-hush" in stored.steps  # for the handler, after a crash


async def test_the_stream_has_no_secret(readable: ReadableApp) -> None:
    entries = await readable.engine.store.reader.journal(0, 1000, JournalFilter(ns=NS))
    lines = [encode_entry(readable.engine.kinds, one, internal) for one in entries for internal in (False, True)]
    assert any("192.0.2.1" in (line or "") for line in lines)
    assert not [one for one in SECRETS if one in str(lines)]
