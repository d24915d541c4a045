"""The client reads all that the server says: what it prints as JSON lacks no field."""

from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from stateward.client import answers
from stateward.client.answers import Listed
from tests.integration.cli.house import House


@pytest.fixture
def http(house: House) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {house.token}"}
    with httpx.Client(base_url=f"{house.url}/api/v1", headers=headers, verify=False) as client:
        yield client


def keys(value: Any) -> Any:
    match value:
        case dict():
            return {name: keys(one) for name, one in value.items()}
        case list():
            return [keys(one) for one in value]
        case _:
            return None


def test_no_field_of_any_answer_is_lost(house: House, http: httpx.Client) -> None:
    house.built("p1", parent="s1", tier="web")
    house.run("create", "station", "s1")
    house.run("do", "tune", "p1", "--wait")
    house.routed("p1", capacity=0)
    op = house.json("do", "tune", "p1")[0]["operation"]["id"]
    at = f"/ns/{house.ns}"
    act = {"requests": [{"object": "p1", "action": "tune"}, {"object": "s1", "action": "pump"}]}
    asked: list[tuple[Any, httpx.Response]] = [
        (answers.ObjectInfo, http.get(f"{at}/objects/p1")),
        (Listed[answers.ObjectInfo], http.get(f"{at}/objects")),
        (answers.Allowed, http.get(f"{at}/objects/p1/allowed")),
        (answers.LineList, http.get(f"{at}/objects/p1/history")),
        (answers.Why, http.get(f"{at}/objects/p1/why")),
        (list[answers.Planned], http.post(f"{at}/plan", json=act)),
        (answers.OperationInfo, http.get(f"{at}/operations/{op}")),
        (Listed[answers.OperationInfo], http.get(f"{at}/operations", params={"object": "p1"})),
        (answers.OperationInfo, http.post(f"{at}/operations/{op}/cancel")),
        (answers.GroupAccepted, http.post(f"{at}/actions/tune", json={"selector": {}})),
        (answers.Lanes, http.get("/lanes")),
        (list[answers.Worker], http.get("/workers")),
        (list[answers.Stuck], http.get("/stuck")),
        (answers.Healed, http.post("/heal")),
        (answers.Pruned, http.post("/prune", json={"older": 3600, "dry_run": True})),
        (list[answers.Namespace], http.get("/namespaces")),
        (answers.NewToken, http.post("/tokens", json={"name": "x", "role": "viewer", "namespaces": ["a"]})),
        (list[answers.Token], http.get("/tokens")),
    ]
    for answer, response in asked:
        assert response.is_success, response.text
        read = msgspec.to_builtins(msgspec.json.decode(response.content, type=answer))
        assert keys(read) == keys(response.json()), answer
