"""Grants: which namespaces may create objects at a connection, in every API."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stateward.domains.mci.demo import BY
from stateward.domains.mci.demo import NS as DEMO
from stateward.domains.mci.errors import InUse, NotGranted
from stateward.domains.mci.lifecycle import VM, MciState
from stateward.domains.mci.mci_template import MciTemplate
from stateward.domains.mci.model import CloudConnection, PostCommand, SubGroup, mci_seen, vm_of
from stateward.domains.mci.provider.catalogue import LOCAL, LOCAL_IMAGE
from stateward.drivers.simulated import SimulatedCloud
from stateward.errors import BadInput, UnknownName
from stateward.plugin.driver_factory import DriverFactory
from stateward.plugin.runtime import ProcessContext
from stateward.store.records import Status
from tests.integration.domains.mci.api_harness import ApiHarness
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness, mci, open_harness
from tests.integration.drivers.local.host_machines import kill_all_in
from tests.stores import fresh_store

OWN = "http://test/api/v1/mci"
ON_HOST = SubGroup("p", 1, "local+here+tiny", LOCAL_IMAGE)
ASKED = {"name": "p", "subGroupSize": 1, "specId": "local+here+tiny", "imageId": LOCAL_IMAGE}


@pytest.fixture(autouse=True)
def _no_machine_stays(tmp_path: Path) -> Any:
    yield
    kill_all_in(tmp_path / "machines" / "process" / "here")


def test_a_driver_says_itself_whether_it_acts_on_this_host(tmp_path: Path) -> None:
    drivers = DriverFactory(tmp_path, SimulatedCloud)
    assert {name for name in drivers.names if drivers.is_on_host(name)} == {"container", "process", "qemu"}
    assert drivers.is_on_host("one that nobody knows")


# --- where something is accepted -------------------------------------------------------------------------------------


async def test_an_mci_on_this_host_is_refused_until_it_is_granted_and_nothing_is_made(harness: MciHarness) -> None:
    with pytest.raises(NotGranted, match=r"'local' is not granted to namespace 'default'; an administrator"):
        await harness.service.create(NS, mci("m1", ON_HOST), ANN)
    assert await harness.service.mcis(NS) == []
    await harness.grant_host()
    assert (await harness.created(mci("m1", ON_HOST))).status is Status.SUCCEEDED
    assert await harness.state() == MciState.RUNNING


async def test_a_grant_is_for_one_namespace_and_no_other(harness: MciHarness) -> None:
    await harness.grant_host("other")
    with pytest.raises(NotGranted):
        await harness.service.create(NS, mci("m1", ON_HOST), ANN)


async def test_a_vm_that_is_asked_for_by_itself_needs_the_grant_too(harness: MciHarness) -> None:
    spec = {
        "name": "p-1", "uid": "u", "mci": "m1", "group": "p", "connection": "local", "provider": "local",
        "region": "here", "spec": "local+here+tiny", "image": "sh", "csp_spec": "tiny", "csp_image": "sh",
    }  # fmt: skip
    await harness.created(mci())
    with pytest.raises(NotGranted):
        await harness.engine.create(NS, "m1.p-1", VM.kind, "create", parent="m1", spec=spec, actor="user")


async def test_an_mci_gets_no_group_on_this_host_without_a_grant(harness: MciHarness) -> None:
    await harness.created(mci())
    with pytest.raises(NotGranted):
        await harness.service.add_group(NS, "m1", ON_HOST, ANN)
    assert len(await harness.service.vms(NS, "m1")) == 2


async def test_a_group_on_this_host_does_not_grow_after_the_grant_was_revoked(harness: MciHarness) -> None:
    await harness.grant_host()
    await harness.created(mci("m1", ON_HOST))
    await harness.service.revoke("local", [NS], ANN)
    with pytest.raises(NotGranted):
        await harness.service.scale(NS, "m1", "p", 1, ANN)
    assert len(await harness.service.vms(NS, "m1")) == 1


async def test_a_group_that_names_its_connection_is_judged_by_that_one(harness: MciHarness) -> None:
    await harness.service.add_connection(CloudConnection("lab", "local", "here", driver="process"), ANN)
    with pytest.raises(NotGranted, match="'lab'"):
        await harness.service.create(NS, mci("m1", SubGroup("p", 1, "local+here+tiny", "sh", connection="lab")), ANN)


async def test_connections_to_clouds_start_with_all_namespaces_and_can_be_limited(harness: MciHarness) -> None:
    await harness.created(mci())
    cloud = await harness.service.catalogue.connection("aws-ap-northeast-2")
    assert cloud.namespaces == ("*",)
    await harness.service.revoke(cloud.name, ["*"], ANN)
    with pytest.raises(NotGranted):
        await harness.service.create(NS, mci("m2"), ANN)
    with pytest.raises(BadInput, match="granted to all"):
        await harness.service.revoke("aws-us-east-1", [NS], ANN)


async def test_many_who_grant_at_once_lose_no_grant(harness: MciHarness) -> None:
    names = [f"t{number}" for number in range(8)]
    await asyncio.gather(*(harness.service.grant("local", [one], ANN) for one in names))
    assert (await harness.service.catalogue.connection("local")).namespaces == tuple(names)


# --- a grant that is revoked -----------------------------------------------------------------------------------------


async def revoked_before_use(harness: MciHarness, monkeypatch: pytest.MonkeyPatch, handlers: object) -> None:
    """Grant this host to a namespace, and revoke it at the moment when handlers are about to use it."""
    await harness.grant_host()
    granted = harness.plugin.clients.for_lane_if_granted

    async def revoked_first(name: str, lane: str, ns: str) -> Any:
        await harness.service.revoke("local", [NS], ANN)
        return await granted(name, lane, ns)

    monkeypatch.setattr(handlers, "_granted_client_of", revoked_first)


async def test_what_was_accepted_before_a_grant_was_revoked_is_not_made_and_says_why(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await revoked_before_use(harness, monkeypatch, harness.plugin._vms)
    await harness.created(mci("m1", ON_HOST))
    (vm,) = await harness.service.vms(NS, "m1")
    assert vm.state == "Failed"
    assert "not granted" in (vm.error or "")
    seen = (await (await harness.plugin.clients.by_name("local")).driver.observe()).machines
    assert vm_of(vm).uid not in [one.key for one in seen]


async def test_a_machine_whose_grant_was_revoked_is_controlled_and_ended_and_runs_no_command(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await revoked_before_use(harness, monkeypatch, harness.plugin.shells)
    await harness.created(mci("m1", ON_HOST, post_command=PostCommand("", ("echo done",))))
    seen = mci_seen(await harness.service.mci(NS, "m1"))
    assert seen.results == {"p-1": ()}
    assert "not granted" in seen.failed["p-1"]
    for action in ("suspend", "resume", "reboot", "terminate"):
        ended = await harness.ended((await harness.service.control(NS, "m1", action, ANN)).whole)
        assert ended.status is Status.SUCCEEDED, action


# --- the connection `local` ------------------------------------------------------------------------------------------


async def test_local_can_be_removed_and_comes_back_without_its_grants(harness: MciHarness) -> None:
    await harness.grant_host()
    await harness.created(mci("m1", ON_HOST))
    with pytest.raises(InUse):
        await harness.service.remove_connection("local", ANN)
    await harness.ended((await harness.service.control(NS, "m1", "terminate", ANN)).whole)
    for word in ("sshKey", "securityGroup", "vNet"):
        for part in await harness.service.resources(NS, word):
            await harness.ended(await harness.engine.act(NS, part.id, "delete"))
    await harness.service.remove_connection("local", ANN)
    assert "local" not in [one.name for one in await harness.service.catalogue.connections()]
    with pytest.raises(NotGranted, match="turned off or removed"):
        await harness.service.create(NS, mci("m2", ON_HOST), ANN)
    with pytest.raises(UnknownName):
        await harness.service.grant("local", [NS], ANN)
    await harness.service.add_connection(LOCAL, ANN)
    assert (await harness.service.catalogue.connection("local")).namespaces == ()


async def test_where_local_is_turned_off_nothing_is_made_there_and_what_runs_can_be_ended(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    new_store = fresh_store("sqlite", request)
    async with open_harness(new_store(), tmp_path) as harness:
        await harness.grant_host()
        await harness.created(mci("m1", ON_HOST))
    async with open_harness(new_store(), tmp_path, site=ProcessContext(tmp_path, offers_local=False)) as harness:
        assert "local" not in [one.name for one in await harness.service.catalogue.connections()]
        with pytest.raises(NotGranted, match="turned off or removed"):
            await harness.service.create(NS, mci("m2", ON_HOST), ANN)
        ended = await harness.ended((await harness.service.control(NS, "m1", "terminate", ANN)).whole)
        assert ended.status is Status.SUCCEEDED


async def test_the_demo_grants_this_host_to_its_own_namespace_alone(harness: MciHarness) -> None:
    await harness.service.grant(LOCAL.name, [DEMO], BY)
    assert (await harness.service.catalogue.connection("local")).namespaces == (DEMO,)


# --- over HTTP -------------------------------------------------------------------------------------------------------


async def test_an_operator_is_told_who_can_grant_and_cannot_do_it_himself(api: ApiHarness) -> None:
    body = {"name": "m1", "subGroups": [ASKED]}
    refused = await api.post(f"/ns/{NS}/mciDynamic", body, "operator")
    assert refused.status_code == 403, refused.text
    for word in ("local", NS, "administrator"):
        assert word in refused.json()["detail"]
    review = (await api.post(f"/ns/{NS}/mciDynamicReview", body, "operator")).json()
    assert not review["creationViable"]
    assert "not granted" in review["vmReviews"][0]["errors"][0]
    grant = f"{OWN}/connections/local/grant"
    assert (await api.post(grant, {"namespaces": [NS]}, "operator")).status_code == 403
    assert (await api.post(grant, {"namespaces": [NS]})).json()["namespaces"] == [NS]
    shown = await api.post(f"/ns/{NS}/mciDynamic?wait=60", body, "operator")
    assert shown.status_code == 200, shown.text
    assert (await api.post(f"{OWN}/connections/local/revoke", {"namespaces": [NS]})).json()["namespaces"] == []
    assert (await api.post(f"/ns/{NS}/mciDynamic", {**body, "name": "m2"}, "operator")).status_code == 403


async def test_a_key_or_a_network_on_this_host_needs_the_grant_too(api: ApiHarness) -> None:
    networks = {"subnetInfoList": [{"name": "s", "ipv4_CIDR": "10.0.1.0/24"}]}
    bodies: dict[str, dict[str, Any]] = {"vNet": networks, "sshKey": {}}
    for word, more in bodies.items():
        refused = await api.post(f"/ns/{NS}/resources/{word}", {"name": "x", "connectionName": "local", **more})
        assert refused.status_code == 403, refused.text


async def test_a_connection_is_added_with_its_namespaces_and_keeps_them_when_it_is_changed(api: ApiHarness) -> None:
    body = {"name": "lab", "provider": "lab", "region": "here", "driver": "process"}
    assert (await api.post(f"{OWN}/connections", body)).json()["namespaces"] == []
    assert (await api.post(f"{OWN}/connections", {**body, "namespaces": ["a", "b"]})).json()["namespaces"] == ["a", "b"]
    assert (await api.post(f"{OWN}/connections", {**body, "zone": "z"})).json()["namespaces"] == ["a", "b"]
    away = await api.post(f"{OWN}/connections", {**body, "driver": "simulated"})
    assert away.json()["namespaces"] == ["*"]
    assert (await api.post(f"{OWN}/connections", body)).json()["namespaces"] == []
    bad: list[list[Any]] = [[], [""], ["a/b"], [{}], ["a b"], ["a\u200bb"]]
    for wrong in bad:
        answer = await api.post(f"{OWN}/connections/lab/grant", {"namespaces": wrong})
        assert answer.status_code == 400, answer.text
    assert (await api.post(f"{OWN}/connections", {**body, "namespaces": ["a b"]})).status_code == 400


async def test_a_grant_of_what_can_be_no_namespace_any_more_is_revoked(api: ApiHarness) -> None:
    await api.plugin.service.grant("local", ["a b"], ANN)
    assert (await api.post(f"{OWN}/connections/local/revoke", {"namespaces": ["a b"]})).json()["namespaces"] == []


# --- what a namespace learns of a connection that is not granted to it ----------------------------------------------

THEIRS = {"name": "private1", "provider": "hushcloud", "region": "secret-1", "driver": "simulated"}
AT_THEIRS: dict[str, tuple[str, dict[str, Any]]] = {
    #                path                        body
    "spec":          ("resources/spec",          {"name": "x", "cspSpecName": "small"}),
    "spec unnamed":  ("resources/spec",          {"cspSpecName": "small"}),
    "image":         ("resources/image",         {"name": "x", "cspImageName": "sh"}),
    "vNet":          ("resources/vNet",          {"name": "x"}),
    "securityGroup": ("resources/securityGroup", {"name": "x", "vNetId": "net"}),
    "sshKey":        ("resources/sshKey",        {"name": "x"}),
}  # fmt: skip


@pytest.fixture
async def private(api: ApiHarness) -> ApiHarness:
    """A connection that is granted to the namespace `other` alone."""
    answer = await api.post(f"{OWN}/connections", {**THEIRS, "namespaces": ["other"]})
    assert answer.status_code == 201, answer.text
    return api


def tells_nothing(text: str) -> bool:
    """Tell whether an answer has neither the provider nor the region of the private connection."""
    return "hushcloud" not in text and "secret-1" not in text


@pytest.mark.parametrize("connection", ["private1", "local"])
@pytest.mark.parametrize("what", AT_THEIRS)
async def test_nothing_is_made_or_registered_at_a_connection_of_others_and_nothing_is_learned_of_it(
    private: ApiHarness, what: str, connection: str
) -> None:
    path, body = AT_THEIRS[what]
    answer = await private.post(f"/ns/{NS}/{path}", {**body, "connectionName": connection}, "operator")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), answer.text
    assert f"{connection!r} is not granted to namespace {NS!r}" in answer.json()["detail"]
    assert tells_nothing(answer.text)
    listed = await private.get(f"/ns/{NS}/{path}", "operator")
    assert listed.json()[path.partition("/")[2]] == []


async def test_a_spec_at_a_connection_of_others_is_refused_over_the_general_api_too(private: ApiHarness) -> None:
    general = f"http://test/api/v1/ns/{NS}/objects"
    spec = {"id": "x", "connection": "private1", "csp_name": "small", "vcpu": 1, "memory_gib": 1.0}
    wanted = {"id": "spec:x", "kind": "mci.spec", "action": "register", "spec": spec}
    answer = await private.post(general, wanted, "operator")
    assert answer.status_code == 403, answer.text
    own = {**spec, "connection": "aws-ap-northeast-2"}
    assert (await private.post(general, {**wanted, "spec": own}, "operator")).status_code == 202
    changed = await private.post(f"{general}/spec:x/actions/change", {"spec": spec}, "operator")
    assert changed.status_code == 403, changed.text
    shown = (await private.get(f"/ns/{NS}/resources/spec/x", "operator")).json()
    assert (shown["connectionName"], shown["providerName"]) == ("aws-ap-northeast-2", "aws")


async def test_a_review_tells_neither_provider_nor_region_of_a_connection_of_others(private: ApiHarness) -> None:
    body = {"name": "m1", "subGroups": [{**ASKED, "connectionName": "private1"}]}
    review = await private.post(f"/ns/{NS}/mciDynamicReview", body, "operator")
    assert "not granted" in review.json()["vmReviews"][0]["errors"][0]
    assert tells_nothing(review.text)


async def test_specs_known_from_the_start_are_those_of_connections_that_the_caller_may_use(api: ApiHarness) -> None:
    body = {"name": "private2", "provider": "aws", "region": "secret-1", "driver": "simulated"}
    await api.post(f"{OWN}/connections", {**body, "namespaces": ["other"]})
    path = f"/ns/{NS}/resources/spec/aws+secret-1+t3.nano"
    assert (await api.get(path)).json()["connectionName"] == "private2"
    assert (await api.get(path, "operator")).status_code == 404


@pytest.mark.parametrize("path", ["resources/vNet", "resources/spec", "mciDynamic"])
async def test_no_hint_names_a_connection_of_others(private: ApiHarness, path: str) -> None:
    body: dict[str, Any] = {"name": "x", "connectionName": "privat1", "cspSpecName": "s"}
    body |= {"subGroups": [{**ASKED, "connectionName": "privat1"}]} if path == "mciDynamic" else {}
    refused = await private.post(f"/ns/{NS}/{path}", body, "operator")
    assert (refused.status_code, "private1" in refused.text) == (400, False), refused.text
    if path != "mciDynamic":  # its hint is for the namespace, whoever asks
        assert "private1" in (await private.post(f"/ns/{NS}/{path}", body)).text


async def test_a_fleet_of_a_template_learns_no_name_of_a_connection_of_others(harness: MciHarness) -> None:
    await harness.service.add_connection(CloudConnection("private1", "aws", "secret-1", namespaces=("other",)), ANN)
    template = MciTemplate(harness.service.catalogue)
    for name, said in (("privat1", "a known connection"), ("private1", "not granted")):
        fleet = {"groups": [{"name": "g", "spec": "aws+us-east-1+t3.nano", "image": "ubuntu22.04", "connection": name}]}
        with pytest.raises(BadInput, match=said) as refused:
            await template.check(NS, template.read("m1", "u", fleet))
        assert "private1" not in str(refused.value) or name == "private1"
        assert "secret-1" not in str(refused.value)
