"""Errors about bad input for an existing object have its state, as refusals have."""

from typing import Any

from tests.integration.domains.mci.api_harness import AWS, NS, ApiHarness, mci

OWN = "http://test/api/v1/mci"
NET = {
    "name": "net",
    "connectionName": AWS,
    "cidrBlock": "10.0.0.0/16",
    "subnetInfoList": [{"name": "front", "ipv4_CIDR": "10.0.1.0/24"}],
}


def problem_of(answer: Any) -> tuple[int, str, str | None]:
    """Return the facts of a problem."""
    body = answer.json()
    assert body["message"] == body["detail"]
    return answer.status_code, body["field"], body.get("state")


CASES: list[tuple[str, str, Any, str]] = [
    # method  path  body  the field that is wrong
    ("POST", "mci/m1?action=paint", None, "action"),
    ("POST", "mci/m1", None, "action"),
    ("POST", "mci/m1?action=suspend&force=perhaps", None, "force"),
    ("GET", "control/mci/m1?action=paint", None, "action"),
    ("GET", "mci/m1?option=paint", None, "option"),
    ("DELETE", "mci/m1?option=paint", None, "option"),
    ("POST", "mci/m1/subgroup/g1", {}, "numVMsToAdd"),
    ("POST", "mci/m1/subgroup/g1", {"numVMsToAdd": "many"}, "numVMsToAdd"),
    ("POST", "mci/m1/subgroup/g1", {"numVMsToRemove": 9}, "numVMsToRemove"),
    ("POST", "mci/m1/vm", {"name": "g2"}, "specId"),
    ("POST", "mci/m1/subGroupDynamic", {"name": "!"}, "name"),
    ("POST", "mci/m1/vm/g1-1?action=paint", None, "action"),
    ("GET", "control/mci/m1/vm/g1-1?action=continue", None, "action"),
    ("GET", "mci/m1/vm/g1-1?option=paint", None, "option"),
    ("DELETE", "mci/m1/vm/G1_1?option=paint", None, "option"),
]


async def test_bad_input_for_an_mci_or_a_vm_is_answered_with_its_state(api: ApiHarness) -> None:
    await api.created()
    for method, path, body, field in CASES:
        answer = await api.client().request(method, f"/ns/{NS}/{path}", json=body)
        assert problem_of(answer) == (400, field, "Running"), (method, path)
    assert (await api.status())["status"] == "Running:2 (R:2/2)"


async def test_the_state_is_that_of_the_vm_and_not_of_its_mci(api: ApiHarness) -> None:
    await api.created()
    await api.done(f"/ns/{NS}/mci/m1/vm/g1-1?action=suspend")
    assert problem_of(await api.post(f"/ns/{NS}/mci/m1/vm/g1-1?action=paint")) == (400, "action", "Suspended")


async def test_bad_input_for_a_resource_is_answered_with_its_state(api: ApiHarness) -> None:
    (await api.post(f"/ns/{NS}/resources/vNet", NET)).raise_for_status()
    path = f"/ns/{NS}/resources/vNet/net"
    assert problem_of(await api.delete(f"{path}?action=paint")) == (400, "action", "Available")
    assert problem_of(await api.delete(f"{path}/subnet/front?force=perhaps")) == (400, "force", "Available")
    outside = await api.post(f"{path}/subnet", {"name": "back", "ipv4_CIDR": "10.9.0.0/24"})
    assert (outside.status_code, outside.json()["state"]) == (400, "Available")


async def test_routes_of_ours_tell_the_state_in_the_same_field(api: ApiHarness) -> None:
    await api.created()
    answer = await api.post(f"{OWN}/ns/{NS}/mci/m1/subgroup/g1", {"size": -1})
    assert (answer.status_code, answer.json()["state"]) == (400, "Running")


async def test_bad_input_for_what_does_not_exist_has_no_state(api: ApiHarness) -> None:
    assert problem_of(await api.post(f"/ns/{NS}/mci/m1?action=paint")) == (400, "action", None)
    assert problem_of(await api.post(f"/ns/{NS}/mciDynamic", mci(name="!"))) == (400, "name", None)
    await api.created()
    await api.done(f"/ns/{NS}/mci/m1?action=terminate")
    (await api.delete(f"/ns/{NS}/mci/m1")).raise_for_status()
    assert problem_of(await api.post(f"/ns/{NS}/mci/m1?action=paint")) == (400, "action", None)
