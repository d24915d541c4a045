"""Deletion protection over HTTP: who may set it, where it is shown, and what it refuses."""

import pytest

from tests.integration.server.server_harness import NS, ServerHarness

FLAG = f"/ns/{NS}/objects/p1/protection"
SCRAP = f"/ns/{NS}/objects/p1/actions/scrap"


async def test_a_protected_object_is_shown_and_refuses_its_removal(harness: ServerHarness) -> None:
    await harness.built(labels={"team": "web"})
    answer = await harness.put(FLAG, {"protected": True, "reason": "the audit needs it"}, who="operator")
    assert (answer.status_code, answer.json()["protected"]) == (200, "the audit needs it")
    shown = (await harness.get(f"/ns/{NS}/objects/p1")).json()
    assert (shown["protected"], shown["labels"]) == ("the audit needs it", {"team": "web"})
    refused = await harness.post(SCRAP, {"facts": ["force"]})
    assert (refused.status_code, refused.json()["code"]) == (409, "protected")
    flag = refused.json()["protection"]
    assert flag == {
        "ns": NS,
        "object": "p1",
        "reason": "the audit needs it",
        "command": "stateward unprotect p1 -n shop",
    }
    assert (await harness.get(FLAG, who="viewer")).json() == {"protection": flag}
    await harness.built("p2", parent="p1")
    assert (await harness.get(f"/ns/{NS}/objects/p2/protection")).json() == {"protection": flag}
    await harness.put(FLAG, {"protected": False})
    assert (await harness.get(f"/ns/{NS}/objects/p2/protection")).json() == {"protection": None}
    assert (await harness.post(SCRAP)).status_code == 202


async def test_protecting_an_object_that_is_being_removed_is_a_conflict(harness: ServerHarness) -> None:
    await harness.built()
    harness.plant.hold()
    removal = (await harness.post(SCRAP)).json()["operation"]["id"]
    refused = await harness.put(FLAG, {"protected": True})
    assert (refused.status_code, refused.json()["code"], refused.json()["blocker"]["op"]) == (
        409,
        "occupied",
        removal,
    )
    harness.plant.release()


async def test_new_labels_leave_the_flag_and_cannot_set_it(harness: ServerHarness) -> None:
    await harness.built()
    await harness.put(FLAG, {"protected": True})
    answer = await harness.put(f"/ns/{NS}/objects/p1/labels", {"labels": {"team": "web"}})
    assert (answer.json()["labels"], answer.json()["protected"]) == ({"team": "web"}, "yes")
    answer = await harness.put(f"/ns/{NS}/objects/p1/labels", {"labels": {"(protected)": "no"}})
    assert (answer.status_code, answer.json()["field"]) == (400, "labels")


async def test_a_preview_counts_protected_objects(harness: ServerHarness) -> None:
    for name in ("p1", "p2", "p3"):
        await harness.built(name)
    await harness.put(FLAG, {"protected": True})
    shown = (await harness.post(f"/ns/{NS}/actions/scrap/preview", {"selector": {"kind": "test.pump"}})).json()
    assert (shown["total"], shown["protected"], shown["protected_examples"], shown["refused"]) == (2, 1, ["p1"], [])
    alone = (await harness.post(f"{SCRAP}/preview")).json()
    assert (alone["accepted"], alone["problem"]["code"], alone["protected"]) == (False, "protected", 1)
    named = (await harness.post(f"/ns/{NS}/actions/scrap/preview", {"objects": ["p1"]})).json()
    assert (named["problem"]["code"], named["protected"]) == ("protected", 1)


async def test_only_administrators_protect_a_namespace(harness: ServerHarness) -> None:
    await harness.built()
    path = f"/ns/{NS}/protection"
    assert (await harness.put(path, {"protected": True}, who="operator")).status_code == 403
    assert (await harness.get(path, who="viewer")).json() == {"ns": NS, "protected": ""}
    answer = await harness.put(path, {"protected": True, "reason": "freeze"})
    assert answer.json() == (await harness.get(path, who="viewer")).json() == {"ns": NS, "protected": "freeze"}
    refused = (await harness.post(SCRAP)).json()
    assert (refused["code"], refused["protection"]["object"]) == ("protected", None)
    assert (await harness.get(FLAG, who="viewer")).json() == {"protection": refused["protection"]}
    await harness.put(path, {"protected": False})
    assert (await harness.post(SCRAP)).status_code == 202


@pytest.mark.parametrize("body", [{}, {"protected": "yes"}, {"protected": True, "reason": "x" * 251}, {"on": True}])
async def test_an_unfit_body_changes_nothing(harness: ServerHarness, body: dict[str, object]) -> None:
    await harness.built()
    before = await harness.everything()
    for path in (FLAG, f"/ns/{NS}/protection"):
        assert (await harness.put(path, body)).status_code == 400
    assert (await harness.put(f"/ns/{NS}/objects/none/protection", {"protected": True})).status_code == 404
    assert await harness.everything() == before
