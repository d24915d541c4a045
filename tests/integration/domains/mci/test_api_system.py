"""System routes: readiness, connections, namespaces, rights, and the request log."""

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from stateward.access import Role, Tokens
from stateward.domains.mci.api import request_log_store
from stateward.domains.mci.api.request_log import NO_ANSWER, LoggedRequest
from stateward.domains.mci.api.request_log_store import (
    all_stored_requests,
    prune_requests,
    store_request,
    stored_requests,
)
from stateward.domains.mci.lifecycle import CALL
from stateward.domains.mci.model import DEPLOYMENT_NS
from stateward.drivers.simulated.faults import CALM
from stateward.engine.queries import list_all
from stateward.store import open_store
from stateward.store.filters import Selector
from stateward.store.records import Key, default_lane
from tests.integration.domains.mci.api_harness import AWS, DEAD, NS, ApiHarness, mci, open_api
from tests.integration.domains.mci.conftest import ANN

M1 = f"/ns/{NS}/mci/m1"
FEW, CROWD = 8, 4


# --- who may what ----------------------------------------------------------------------------------------------------


async def test_everybody_sees_that_the_server_is_ready(api: ApiHarness) -> None:
    answer = await api.get("/readyz", "nobody")
    assert (answer.status_code, answer.json()["ready"], answer.json()["initialized"]) == (200, True, True)


async def test_a_server_that_stops_is_ready_under_no_path(api: ApiHarness) -> None:
    await api.engine.drain()
    for path in ("/readyz", "http://test/readyz", "http://test/spider/readyz"):
        answer = await api.get(path, "nobody")
        assert (answer.status_code, answer.json()["detail"]) == (503, "it is about to stop"), path


async def test_a_token_may_come_as_the_password_of_any_user(api: ApiHarness) -> None:
    assert (await api.get("/ns", "nobody", headers=api.basic())).status_code == 200
    refused = await api.get("/ns", "nobody")
    assert (refused.status_code, bool(refused.json()["message"])) == (401, True)


RIGHTS = [
    ("viewer", "GET", f"/ns/{NS}/mci", 200),
    ("viewer", "POST", f"/ns/{NS}/mciDynamic", 403),
    ("viewer", "POST", f"{M1}?action=suspend", 403),
    ("viewer", "GET", f"/ns/{NS}/control/mci/m1?action=suspend", 403),
    ("viewer", "DELETE", M1, 403),
    ("operator", "GET", "/ns/other", 403),
    ("outsider", "GET", f"/ns/{NS}/mci", 403),
    ("outsider", "POST", f"/ns/{NS}/resources/sshKey", 403),
    ("operator", "POST", "http://test/api/v1/mci/connections", 403),
    ("operator", "GET", "http://test/api/v1/mci/orphans", 403),
    ("viewer", "GET", "http://test/api/v1/mci/connections", 200),
    ("viewer", "POST", f"http://test/api/v1/mci/ns/{NS}/mci/m1/reconcile", 403),
]


async def test_everybody_may_do_what_the_token_says_and_no_more(api: ApiHarness) -> None:
    for who, method, path, code in RIGHTS:
        answer = await api.client(who).request(method, path)
        assert answer.status_code == code, (who, method, path, answer.text)


# --- namespaces ------------------------------------------------------------------------------------------------------


async def test_a_namespace_is_made_described_and_removed(api: ApiHarness) -> None:
    answer = await api.post("/ns", {"Name": "ns01", "description": "d"})
    assert answer.json() == {"resourceType": "ns", "id": "ns01", "name": "ns01", "description": "d"}
    assert (await api.post("/ns", {"name": "ns01"})).status_code == 409
    assert (await api.put("/ns/ns01", {"description": "e"})).json()["description"] == "e"
    assert (await api.get("/ns/ns01")).json()["description"] == "e"
    assert (await api.delete("/ns/ns01")).json() == {"message": "The ns ns01 has been deleted"}
    assert (await api.get("/ns/ns01")).status_code == 404
    assert (await api.post("/ns", {"name": "ns01"})).status_code == 200


async def test_the_lanes_of_removed_namespaces_and_connections_go_with_them(api: ApiHarness) -> None:
    async def lanes() -> set[str]:
        return {load.lane.lane for load in (await api.engine.store.reader.lanes())[1]}

    before, service = await lanes(), api.plugin.service
    await api.post("/ns", {"name": "ns01"})
    await api.engine.set_limits(lanes=[default_lane("commands/ns01", "commands")])
    known = await service.catalogue.connection(AWS)
    for name in ("one", "two"):
        await service.add_connection(replace(known, name=name, region="far"), ANN)
    assert await lanes() - before == {"commands/ns01", f"{known.provider}/far"}
    await api.delete("/ns/ns01")
    await service.remove_connection("one", ANN)
    assert await lanes() - before == {f"{known.provider}/far"}
    await service.remove_connection("two", ANN)
    assert await lanes() == before


async def test_a_namespace_with_something_in_it_stays(api: ApiHarness) -> None:
    await api.created()
    assert (await api.delete(f"/ns/{NS}")).status_code == 409


async def test_who_has_a_token_for_some_namespaces_sees_and_makes_those(api: ApiHarness) -> None:
    await api.post("/ns", {"name": "ns01"})
    assert (await api.get("/ns?option=id", "operator")).json() == {"output": [NS]}
    assert (await api.post("/ns", {"name": "ns02"}, "operator")).status_code == 403
    assert (await api.post("/ns", {"name": "other"}, "outsider")).status_code == 200


# --- connections -----------------------------------------------------------------------------------------------------


async def test_a_fresh_server_knows_the_simulated_providers(api: ApiHarness) -> None:
    names = {one["configName"] for one in (await api.get("/connConfig")).json()["connectionconfig"]}
    assert {AWS, "azure-koreacentral", "gcp-asia-northeast3", "local"} <= names
    assert (await api.get("/connConfig?filterCredentialHolder=somebody")).json() == {"connectionconfig": []}


# --- what became of a call -------------------------------------------------------------------------------------------


async def test_the_id_of_a_call_is_echoed(api: ApiHarness) -> None:
    answer = await api.get("/ns", headers={"x-request-id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    missing = await api.get(M1, headers={"x-request-id": "mine-2"})
    assert (missing.status_code, missing.headers["x-request-id"]) == (404, "mine-2")
    assert len((await api.get("/ns")).headers["x-request-id"]) == 32


async def test_a_call_is_found_again_by_its_id(api: ApiHarness) -> None:
    await api.post(f"{M1}?action=suspend", headers={"x-request-id": "mine-1"})
    shown = (await api.get("/request/mine-1")).json()
    assert (shown["status"], shown["requestInfo"]["method"]) == ("Error", "POST")
    assert shown["requestInfo"]["url"] == f"/tumblebug{M1}?action=suspend"
    assert shown["errorResponse"] == shown["responseData"]["message"]
    assert [one["id"] for one in (await api.get("/requests?status=error")).json()["requests"]] == ["mine-1"]
    for minutes, found in (("1000", ["mine-1"]), ("0", [])):
        listed = (await api.get(f"/requests?status=error&time={minutes}")).json()["requests"]
        assert [one["id"] for one in listed] == found, minutes
    assert (await api.get("/requests?time=1e3")).status_code == 400


async def test_a_call_is_being_handled_until_its_operation_has_ended(api: ApiHarness) -> None:
    api.set_profile(DEAD)
    answer = await api.post(f"/ns/{NS}/mciDynamic", mci(), headers={"x-request-id": "mine-1"})
    assert (await api.get("/request/mine-1")).json()["status"] == "Handling"
    api.set_profile(CALM)
    await api.engine.wait_record(NS, answer.json()["operation"], 60)
    shown = (await api.get("/request/mine-1")).json()
    assert (shown["status"], bool(shown["endTime"])) == ("Success", True)


async def test_a_call_is_known_after_its_process_has_ended_and_to_other_processes(tmp_path: Path) -> None:
    new_store = partial(open_store, str(tmp_path / "stateward.db"))
    mine = {"x-request-id": "mine-1"}
    async with open_api(tmp_path / "a", new_store()) as first:
        answer = await first.post(f"/ns/{NS}/mciDynamic?wait=60", {**mci(), "password": "hidden-1"}, headers=mine)
        assert answer.status_code == 200, answer.text
        before = (await first.get("/request/mine-1")).json()
    async with open_api(tmp_path / "b", new_store()) as second:
        shown = await second.get("/request/mine-1")
        assert shown.json() == before
        assert (before["status"], before["requestInfo"]["body"]["name"]) == ("Success", "m1")
        assert "hidden" not in shown.text
        assert "mine-1" in [one["id"] for one in (await second.get("/requests?method=POST")).json()["requests"]]
        assert (await second.get("/request/mine-1", "outsider")).status_code == 404


async def test_what_only_reads_is_not_kept_and_what_has_no_id_of_its_own_neither(api: ApiHarness) -> None:
    await api.get("/ns", headers={"x-request-id": "mine-1"})
    await api.post("/ns", {"name": "ns01"})
    assert await all_stored_requests(api.engine) == []
    await api.get(f"/ns/{NS}/control/mci/m1?action=suspend", headers={"x-request-id": "mine-2"})
    assert [one.id for one in await all_stored_requests(api.engine)] == ["mine-2"]


async def test_another_callers_call_of_the_same_id_is_a_record_of_its_own(tmp_path: Path) -> None:
    new_store = partial(open_store, str(tmp_path / "stateward.db"))
    mine = {"x-request-id": "mine-1"}
    async with open_api(tmp_path / "a", new_store()) as first:
        await first.post(f"{M1}?action=suspend", who="operator", headers=mine)
        await first.post("/ns/other/mci/m2?action=resume", who="outsider", headers=mine)
        await first.get("/ns/other/mci", "outsider", headers=mine)
        assert await urls(first) == [f"/tumblebug{M1}?action=suspend", "/tumblebug/ns/other/mci/m2?action=resume"]
    async with open_api(tmp_path / "b", new_store()) as second:
        found = {one.url: one.token for one in await all_stored_requests(second.engine)}
        assert len(set(found.values())) == 2
        second.texts["local admin"] = (await Tokens(second.engine).issue("liz", Role.ADMIN, [NS]))[0]
        viewed = (await second.get("/request/mine-1", "local admin")).json()
        assert viewed["requestInfo"]["url"] == f"/tumblebug{M1}?action=suspend"


async def urls(api: ApiHarness) -> list[str]:
    """Return which call the operator and the outsider find under the same id."""
    found = [(await api.get("/request/mine-1", who)).json() for who in ("operator", "outsider")]
    return [one["requestInfo"]["url"] for one in found]


async def test_a_call_that_reads_does_not_replace_the_record_of_a_change(tmp_path: Path) -> None:
    new_store = partial(open_store, str(tmp_path / "stateward.db"))
    mine = {"x-request-id": "mine-1"}
    texts: dict[str, str] = {}
    async with open_api(tmp_path / "a", new_store()) as first:
        texts.update(first.texts)
        await first.post(f"{M1}?action=suspend", headers=mine)
        await first.get("/ns", headers=mine)
        assert (await first.get("/request/mine-1")).json()["requestInfo"]["method"] == "POST"
    async with open_api(tmp_path / "b", new_store()) as second:
        second.texts.update(texts)
        await second.get("/ns", headers=mine)
        assert (await second.get("/request/mine-1")).json()["requestInfo"]["method"] == "POST"
        (listed,) = [one for one in (await second.get("/requests")).json()["requests"] if one["id"] == "mine-1"]
        assert listed["requestInfo"]["method"] == "POST"


async def test_a_call_that_was_cut_off_is_an_error_in_the_end(api: ApiHarness) -> None:
    await store_request(api.engine, LoggedRequest("mine-1", "POST", "/tumblebug/ns", NS, "", {}, time.time() - 1.0))
    await store_request(api.engine, LoggedRequest("mine-2", "POST", "/tumblebug/ns", NS, "", {}, time.time() - 3600.0))
    assert (await api.get("/request/mine-1")).json()["status"] == "Handling"
    shown = (await api.get("/request/mine-2")).json()
    assert (shown["status"], shown["errorResponse"]) == ("Error", NO_ANSWER)


async def test_old_calls_are_forgotten_and_so_are_the_oldest_of_too_many(api: ApiHarness) -> None:
    now = await api.engine.store.reader.time()
    for number in range(5):
        await store_request(api.engine, LoggedRequest(f"mine-{number}", "POST", "/", NS, "", {}, now - number * 1000.0))
    await prune_requests(api.engine, kept_for=3500.0, most=3)
    assert sorted(one.id for one in await all_stored_requests(api.engine)) == ["mine-0", "mine-1", "mine-2"]
    await prune_requests(api.engine, kept_for=1500.0)
    assert sorted(one.id for one in await all_stored_requests(api.engine)) == ["mine-0", "mine-1"]


async def records_of_calls(api: ApiHarness) -> int:
    """Count the records of calls, those that are removed included."""
    rows = [await api.engine.store.reader.object(Key(DEPLOYMENT_NS, f"call:{number}")) for number in range(FEW)]
    return sum(one is not None for one in rows)


async def test_the_records_of_calls_do_not_pile_up(api: ApiHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log_store, "SLOTS", FEW)
    now = await api.engine.store.reader.time()
    for number in range(5 * FEW):
        await store_request(api.engine, LoggedRequest(f"mine-{number}", "POST", "/", NS, "", {}, now + number))
        await prune_requests(api.engine, most=1)
        assert await stored_requests(api.engine, f"mine-{number}") != []
    assert await records_of_calls(api) <= FEW


async def test_where_no_place_is_free_the_oldest_call_goes(api: ApiHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log_store, "SLOTS", 1)
    for number in range(3):
        await store_request(api.engine, LoggedRequest(f"mine-{number}", "POST", "/", NS, "", {}, float(number)))
    assert [one.id for one in await all_stored_requests(api.engine)] == ["mine-2"]
    assert await stored_requests(api.engine, "mine-1") == []


async def test_calls_that_come_at_once_into_one_place_are_all_kept(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        request_log_store, "slots_of", lambda _: [Key(DEPLOYMENT_NS, f"call:{number}") for number in range(CROWD)]
    )
    await asyncio.gather(
        *(
            store_request(api.engine, LoggedRequest(f"mine-{number}", "POST", "/", NS, "", {}, 0.0))
            for number in range(CROWD)
        )
    )
    assert sorted(one.id for one in await all_stored_requests(api.engine)) == [
        f"mine-{number}" for number in range(CROWD)
    ]


async def test_no_secret_of_a_call_is_kept(api: ApiHarness) -> None:
    body = {**mci(), "vmUserPassword": "hidden-1", "deep": [{"private_key": "hidden-2"}]}
    names = {"x-request-id": "mine-1", "cookie": "hidden-4"}
    await api.post(f"/ns/{NS}/mciDynamicReview?token=hidden-3", body, headers=names)  # a change refuses such a query
    text = (await api.get("/request/mine-1")).text
    assert "hidden" not in text
    assert "sw_" not in text
    assert '"name":"m1"' in text


@pytest.mark.parametrize("field", ["encryptFor", "publicKey", "description"])
async def test_a_private_key_in_a_wrong_field_is_in_no_answer_and_no_record(api: ApiHarness, field: str) -> None:
    pem = "-----BEGIN OPENSSH PRIVATE KEY-----\nhidden\n-----END OPENSSH PRIVATE KEY-----\n"
    body = {"name": "k", "connectionName": AWS, "deep": [{pem: f"# {pem}"}], field: pem}
    answer = await api.post(f"/ns/{NS}/resources/sshKey", body, headers={"x-request-id": "mine-1"})
    shown = [(await api.get("/request/mine-1")).text, (await api.get("/requests")).text]
    stored = [one.spec async for one in list_all(api.engine.store.reader, Selector(DEPLOYMENT_NS, CALL.kind))]
    assert len(stored) == 1
    assert "hidden" not in str([answer.text if field != "description" else "", shown, stored])


async def test_the_records_of_calls_show_a_viewer_of_everything_nothing_of_the_calls(api: ApiHarness) -> None:
    api.texts["auditor"] = (await Tokens(api.engine).issue("vera", Role.VIEWER, ["*"]))[0]
    body = {
        "name": "inner",
        "provider": "sim",
        "region": "r1",
        "driver": "simulated",
        "options": {"latency": "0.01234"},
    }
    answer = await api.post("http://test/api/v1/mci/connections", body, headers={"x-request-id": "of-admin"})
    assert answer.status_code in (200, 201, 202), answer.text
    ways = ("objects?kind=mci.call", "journal?kind=mci.call", "operations?kind=mci.call", "search?q=of-admin")
    shown = {
        who: [(await api.get(f"http://test/api/v1/{way}", who)).text for way in ways] for who in ("auditor", "admin")
    }
    assert "mci.call" in shown["auditor"][0]
    for word in ("0.01234", "of-admin", "/mci/connections"):
        assert word not in str(shown["auditor"])
        assert word in shown["admin"][0]


async def test_a_call_is_shown_to_who_made_it_and_to_administrators_alone(api: ApiHarness) -> None:
    tokens = Tokens(api.engine)
    api.texts["second"] = (await tokens.issue("olga", Role.OPERATOR, [NS]))[0]  # the same name, another token
    api.texts["local admin"] = (await tokens.issue("liz", Role.ADMIN, [NS]))[0]
    await api.post(f"{M1}?action=suspend", who="operator", headers={"x-request-id": "mine-1"})
    await api.get(f"/ns/{NS}/mci", "operator", headers={"x-request-id": "mine-2"})
    await api.get("/connConfig", "operator", headers={"x-request-id": "mine-3"})
    seen = {
        "operator": [1, 2, 3],
        "admin": [1, 2, 3],
        "local admin": [1, 2],
        "second": [],
        "viewer": [],
        "outsider": [],
    }
    for who, numbers in seen.items():
        answers = {number: await api.get(f"/request/mine-{number}", who) for number in (1, 2, 3)}
        assert [number for number, one in answers.items() if one.status_code == 200] == numbers, who
        listed = {one["id"] for one in (await api.get("/requests", who)).json()["requests"]}
        assert {one for one in listed if one.startswith("mine")} == {f"mine-{number}" for number in numbers}, who
