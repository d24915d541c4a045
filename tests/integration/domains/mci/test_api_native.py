"""Native routes: connections, orphans, reconcile and scaling, for the command line."""

import asyncio
from collections.abc import Collection
from itertools import product

import pytest
from msgspec.structs import replace

from stateward.access import Role, Tokens
from stateward.domains.mci.lifecycle import VM
from stateward.domains.mci.provider.evidence import Evidence
from stateward.drivers import MachineListing, MachineSpec
from stateward.drivers.simulated.faults import CALM
from stateward.store.changes import Changes
from stateward.store.filters import Page, Selector
from stateward.store.port import Tx
from tests.integration.domains.mci.api_harness import AWS, DEAD, HERE, NS, UBUNTU, ApiHarness, group, mci

OWN = "http://test/api/v1/mci"


async def test_a_connection_is_added_used_changed_and_removed(api: ApiHarness) -> None:
    body = {"name": "mine", "provider": "aws", "region": "us-east-1", "driver": "simulated"}
    answer = await api.post(f"{OWN}/connections", body)
    assert answer.status_code == 201, answer.text
    assert (answer.json()["name"], answer.json()["built_in"]) == ("mine", False)
    assert (await api.get("/connConfig/mine")).json()["regionZoneInfo"]["assignedRegion"] == "us-east-1"
    shown = await api.created(mci("m1", group("g1", 1, connectionName="mine", specId="aws+us-east-1+t3.nano")))
    assert (shown["vm"][0]["connectionName"], shown["vm"][0]["region"]["region"]) == ("mine", "us-east-1")
    assert (await api.post(f"{OWN}/connections", {**body, "zone": "a"})).json()["zone"] == "a"
    assert (await api.delete(f"/ns/{NS}/mci/m1?option=terminate")).status_code == 200
    assert (await api.delete(f"/ns/{NS}/sharedResources")).status_code == 200
    assert (await api.delete(f"{OWN}/connections/mine")).status_code == 200
    assert (await api.get("/connConfig/mine")).status_code == 404


async def test_a_connection_is_not_taken_away_from_what_stands_at_it(api: ApiHarness) -> None:
    body = {"name": "mine", "provider": "aws", "region": "us-east-1", "driver": "simulated"}
    await api.post(f"{OWN}/connections", body)
    await api.created(mci("m1", group("g1", 1, connectionName="mine", specId="aws+us-east-1+t3.nano")))
    refusals = [
        await api.delete(f"{OWN}/connections/mine"),
        await api.post(f"{OWN}/connections", body | {"region": "us-west-2"}),
        await api.post(f"{OWN}/connections", body | {"driver": "process"}),
    ]
    assert [one.status_code for one in refusals] == [409, 409, 409]
    assert {one.json()["code"] for one in refusals} == {"in_use"}
    assert f"{NS}/m1.g1-1" in refusals[0].json()["detail"]
    assert (await api.get("/connConfig/mine")).json()["regionZoneInfo"]["assignedRegion"] == "us-east-1"


async def test_a_change_that_is_refused_leaves_a_connection_as_it_works(api: ApiHarness) -> None:
    body = {"name": "mine", "provider": "aws", "region": "us-east-1", "driver": "simulated"}
    await api.post(f"{OWN}/connections", body)
    cloud = await api.plugin.service.clients.by_name("mine")
    looks = asyncio.Queue[Evidence]()

    def goes_on(look: Evidence) -> bool:
        looks.put_nowait(look)
        return False

    waits = asyncio.ensure_future(cloud.wait_for("nobody", goes_on))
    for _ in range(2):  # the second look is that of the watch, which a connection stops when it is closed
        await asyncio.wait_for(looks.get(), 60)
    answer = await api.post(f"{OWN}/connections", body | {"options": {"page": "0"}})
    assert (answer.status_code, answer.json()["field"]) == (400, "page")
    while not looks.empty():
        looks.get_nowait()
    await asyncio.wait_for(looks.get(), 60)
    assert not waits.done()
    waits.cancel()


async def test_a_connection_that_cannot_be_is_bad_input(api: ApiHarness) -> None:
    full = {"name": "mine", "provider": "aws", "region": "r"}
    for wrong in ({"provider": ""}, {"name": ""}, {"driver": "telepathy"}, {"options": {"nonsense": "1"}}):
        answer = await api.post(f"{OWN}/connections", full | wrong)
        assert answer.status_code == 400, answer.text
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_credential_that_may_be_a_secret_is_refused_and_repeated_nowhere(
    api: ApiHarness, caplog: pytest.LogCaptureFixture
) -> None:
    must = "must be env:PREFIX, file:PATH or file:PATH#PROFILE; what was given is not shown, as it may be a secret"
    bad = ("AKIA1:SECRETWORD", "env:SECRET/WORD", "env:", "file:#SECRETWORD", ["SECRETWORD"], 7)
    for number, (field, given) in enumerate(product(("credential", "credentialName"), bad)):
        body = {"name": "mine", "provider": "aws", "region": "r", "driver": "simulated", field: given}
        answer = await api.post(f"{OWN}/connections", body, headers={"x-request-id": f"r{number}"})
        assert (answer.status_code, answer.json()["detail"]) == (400, f"credential: {must}"), (field, given)
        journal, logged = await api.get("http://test/api/v1/journal"), await api.get(f"/request/r{number}")
        assert logged.status_code == 200
        assert not [one for one in (answer.text, journal.text, logged.text, caplog.text) if "SECRET" in one]
    assert (await api.get("/connConfig/mine")).status_code == 404


async def test_a_reference_to_a_credential_is_kept_as_it_is(api: ApiHarness) -> None:
    for number, given in enumerate(("", "env:KEY", "file:/etc/keys", "file:keys of us.ini#night")):
        body = {"name": f"mine-{number}", "provider": "aws", "region": "r", "driver": "simulated", "credential": given}
        assert (await api.post(f"{OWN}/connections", body)).json().get("credential", "") == given


async def test_what_a_connection_offers_is_told(api: ApiHarness) -> None:
    offer = (await api.get(f"{OWN}/connections/{AWS}/offer")).json()
    assert "t3.nano" in {one["cspSpecName"] for one in offer["specs"]}
    assert UBUNTU in {one["cspImageName"] for one in offer["images"]}


async def test_a_machine_that_no_record_knows_is_found_and_terminated(api: ApiHarness) -> None:
    await api.created()
    api.plugin.cloud.create_orphan(HERE, MachineSpec("lost", "lost", "t3.nano", UBUNTU))
    found = (await api.get(f"{OWN}/orphans?connection={AWS}")).json()
    assert [(one["connection"], one["key"]) for one in found["orphans"]] == [(AWS, "lost")]
    assert found == (await api.get(f"{OWN}/orphans")).json() | {"trouble": {}}
    answer = await api.post(f"{OWN}/orphans/terminate", {"connection": AWS, "key": "lost"})
    assert answer.status_code == 202, answer.text
    assert (await api.get(f"{OWN}/orphans?connection={AWS}")).json()["orphans"] == []


async def test_many_orphans_are_terminated_with_one_listing_and_one_call(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    (vm, *_) = (await api.created())["vm"]
    for number in range(12):
        api.plugin.cloud.create_orphan(HERE, MachineSpec(f"lost-{number}", f"lost-{number}", "t3.nano", UBUNTU))
    driver, calls = (await api.plugin.service.clients.by_name(AWS)).driver, list[str]()
    observe = driver.observe

    async def count(keys: Collection[str] | None) -> MachineListing:
        calls.append("observe")
        return await observe(keys)

    monkeypatch.setattr(driver, "observe", count)
    keys = [*(f"lost-{number}" for number in range(12)), vm["uid"]]
    answer = await api.post(f"{OWN}/orphans/terminate", {"connection": AWS, "keys": keys})
    assert (answer.status_code, list(answer.json()["left"])) == (202, [vm["uid"]]), answer.text
    assert calls == ["observe"]
    assert (await api.get(f"{OWN}/orphans?connection={AWS}")).json()["orphans"] == []
    many = await api.post(
        f"{OWN}/orphans/terminate", {"connection": AWS, "keys": ["k"] + [str(n) for n in range(1000)]}
    )
    assert (many.status_code, many.json()["field"]) == (400, "keys")


async def test_one_bad_record_does_not_hide_the_orphans_and_guards_them(api: ApiHarness) -> None:
    shown = await api.created()
    api.plugin.cloud.create_orphan(HERE, MachineSpec("lost", "lost", "t3.nano", UBUNTU))
    vms = await api.engine.store.reader.list_objects(Selector(NS, VM.kind), Page())
    key = next(one.key for one in vms if shown["vm"][0]["uid"] in one.spec)

    async def damage(tx: Tx) -> None:
        found = (await tx.objects([key]))[key]
        await tx.apply(Changes(objects=[replace(found, spec='{"name": 5}', version=found.version + 1)]))

    await api.engine.store.transact(damage)
    found = (await api.get(f"{OWN}/orphans?connection={AWS}")).json()
    assert "lost" in {one["key"] for one in found["orphans"]}
    assert "its record cannot be read" in found["trouble"][f"{key.ns}/{key.id}"]
    answer = await api.post(f"{OWN}/orphans/terminate", {"connection": AWS, "key": "lost"})
    assert (answer.status_code, key.id in answer.text) == (409, True), answer.text


async def test_an_unknown_option_of_a_driver_is_refused_with_the_nearest(api: ApiHarness) -> None:
    for driver, option, nearest in (("process", "spec", "specs"), ("aws", "endpoint", "endpoint_url")):
        body = {"name": "mine", "provider": "p", "region": "r", "driver": driver, "options": {option: "x"}}
        answer = await api.post(f"{OWN}/connections", body)
        assert (answer.status_code, f"did you mean '{nearest}'?" in answer.text) == (400, True), answer.text


async def test_a_machine_that_a_record_knows_is_no_orphan(api: ApiHarness) -> None:
    shown = await api.created()
    answer = await api.post(f"{OWN}/orphans/terminate", {"connection": AWS, "key": shown["vm"][0]["uid"]})
    assert answer.status_code == 404


SECOND = {"name": "second", "provider": "aws", "region": "ap-northeast-2", "driver": "simulated"}
"""A further connection to the region of the connection AWS."""


async def test_a_machine_that_a_record_of_another_connection_knows_is_no_orphan(api: ApiHarness) -> None:
    shown = await api.created()
    assert (await api.post(f"{OWN}/connections", SECOND)).status_code == 201
    for query in ("", "?connection=second"):
        assert (await api.get(f"{OWN}/orphans{query}")).json() == {"orphans": [], "trouble": {}}
    for vm in shown["vm"]:
        answer = await api.post(f"{OWN}/orphans/terminate", {"connection": "second", "key": vm["uid"]})
        assert answer.status_code == 404, answer.text
    assert (await api.status(more="&fresh=true"))["status"] == "Running:2 (R:2/2)"


async def test_a_machine_whose_record_is_made_during_the_listing_is_not_terminated(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.post(f"{OWN}/connections", SECOND)
    client = await api.plugin.service.clients.by_name("second")
    observe, uids = client.driver.observe, list[str]()

    async def observe_after_create(keys: Collection[str] | None) -> MachineListing:
        uids.extend(vm["uid"] for vm in (await api.created(mci(f"m{len(uids)}")))["vm"])
        return await observe(keys)

    monkeypatch.setattr(client.driver, "observe", observe_after_create)
    assert (await api.get(f"{OWN}/orphans?connection=second")).json()["orphans"] == []
    answer = await api.post(f"{OWN}/orphans/terminate", {"connection": "second", "key": uids[0]})
    assert (answer.status_code, len(uids)) == (404, 4)
    assert (await api.status("m0", "&fresh=true"))["status"] == "Running:2 (R:2/2)"


async def test_an_orphan_that_two_connections_show_is_listed_once_and_terminated_over_either(api: ApiHarness) -> None:
    await api.post(f"{OWN}/connections", SECOND)
    api.plugin.cloud.create_orphan(HERE, MachineSpec("lost", "lost", "t3.nano", UBUNTU))
    assert [one["key"] for one in (await api.get(f"{OWN}/orphans")).json()["orphans"]] == ["lost"]
    for connection in (AWS, "second"):
        answer = await api.post(f"{OWN}/orphans/terminate", {"connection": connection, "key": "lost"})
        assert answer.status_code == 202, answer.text
    assert (await api.get(f"{OWN}/orphans")).json()["orphans"] == []


async def test_a_connection_that_cannot_be_looked_at_is_told(api: ApiHarness) -> None:
    api.set_profile(DEAD)
    found = (await api.get(f"{OWN}/orphans?connection={AWS}")).json()
    assert (found["orphans"], list(found["trouble"])) == ([], [AWS])
    api.set_profile(CALM)


async def test_what_the_provider_shows_of_vms_that_failed_is_taken_over_on_request(api: ApiHarness) -> None:
    shown = await api.created()
    for vm in shown["vm"]:
        api.plugin.cloud.stop(HERE, vm["uid"])
        await api.post(f"/ns/{NS}/mci/m1/vm/{vm['id']}?action=reboot&wait=60")
    assert (await api.status())["status"] == "Failed:2 (R:0/2)"
    answer = await api.post(f"{OWN}/ns/{NS}/mci/m1/vm/g1-1/reconcile?wait=60")
    assert (answer.status_code, answer.json()["operationStatus"]) == (202, "succeeded")
    assert (await api.get(f"/ns/{NS}/mci/m1/vm/g1-1")).json()["status"] == "Suspended"
    answer = await api.post(f"{OWN}/ns/{NS}/mci/m1/reconcile?wait=60")
    assert (answer.status_code, answer.json()["operationStatus"]) == (202, "succeeded")
    assert (await api.status())["status"] == "Suspended:2 (R:0/2)"


async def test_a_subgroup_is_scaled(api: ApiHarness) -> None:
    await api.created()
    answer = await api.post(f"{OWN}/ns/{NS}/mci/m1/subgroup/g1?wait=60", {"size": 4})
    assert (answer.status_code, answer.json()["status"]) == (202, "Running:4 (R:4/4)")


# --- the general API -------------------------------------------------------------------------------------------------


async def test_a_scaling_that_does_not_say_how_is_bad_input_and_names_field_state_and_what_is_allowed(
    api: ApiHarness,
) -> None:
    await api.created()
    answer = await api.post(f"http://test/api/v1/ns/{NS}/objects/m1/actions/scale out", {})
    assert (answer.status_code, answer.json()["field"], answer.json()["state"]) == (400, "args.group", "Running")
    assert "{group, count}, to scale out 'm1', which is Running" in answer.json()["detail"]
    assert (await api.status())["status"] == "Running:2 (R:2/2)"


async def test_a_scaling_over_the_general_api_is_one_like_any_other(api: ApiHarness) -> None:
    await api.created()
    body = {"args": {"group": "g1", "count": 2}}
    answer = await api.post(f"http://test/api/v1/ns/{NS}/objects/m1/actions/scale out?wait=60", body)
    assert answer.status_code == 200, answer.text
    assert (await api.status())["status"] == "Running:4 (R:4/4)"


async def test_only_an_administrator_of_everything_sees_how_a_connection_is_reached(api: ApiHarness) -> None:
    body = {"name": "mine", "provider": "aws", "region": "eu-central-1", "driver": "simulated", "credential": "env:KEY"}
    await api.post(f"{OWN}/connections", body | {"options": {"dead": "false"}})
    shown = {who: (await api.get(f"{OWN}/connections", who)).json() for who in ("admin", "operator", "viewer")}
    (full,) = [one for one in shown["admin"] if one["name"] == "mine"]
    assert (full["credential"], full["options"]) == ("env:KEY", {"dead": "false"})
    for who in ("operator", "viewer"):
        (mine,) = [one for one in shown[who] if one["name"] == "mine"]
        assert mine.keys() == {"name", "provider", "region", "zone", "driver", "built_in"}
        views = [
            (await api.get("/connConfig", who)).text,
            (await api.get("/connConfig/mine", who)).text,
            (await api.get("http://test/api/v1/journal", who)).text,
        ]
        assert not [one for one in views if "env:KEY" in one]
    assert (await api.get("/connConfig/mine")).json()["credentialName"] == "env:KEY"


async def test_a_reader_of_all_namespaces_does_not_find_credentials_in_the_journal(api: ApiHarness) -> None:
    body = {"name": "mine", "provider": "aws", "region": "eu-central-1", "driver": "simulated", "credential": "env:KEY"}
    await api.post(f"{OWN}/connections", body)
    api.texts["reader"], _ = await Tokens(api.engine).issue("rita", Role.VIEWER, ["*"])
    assert "mine" in (await api.get("http://test/api/v1/journal", "reader")).text
    assert "env:KEY" not in (await api.get("http://test/api/v1/journal", "reader")).text
    assert "env:KEY" in (await api.get("http://test/api/v1/journal")).text


async def test_a_token_for_some_namespaces_sees_the_connections_that_those_may_use(api: ApiHarness) -> None:
    body = {"name": "theirs", "provider": "aws", "region": "eu-north-1", "driver": "simulated"}
    await api.post(f"{OWN}/connections", body | {"namespaces": ["other"]})
    for path in (f"{OWN}/connections", "/connConfig", "/provider/aws/region"):
        assert "eu-north-1" in (await api.get(path)).text
        assert "eu-north-1" in (await api.get(path, "outsider")).text
        assert "eu-north-1" not in (await api.get(path, "viewer")).text
    for path in ("/connConfig/theirs", f"{OWN}/connections/theirs/offer"):
        refused = await api.get(path, "viewer")
        assert (refused.status_code, "theirs" in refused.json()["known"]) == (404, False)
        assert (await api.get(path, "outsider")).status_code == 200
