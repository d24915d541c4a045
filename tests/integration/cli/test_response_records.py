"""The client decodes whole responses: `--json` prints every field that the server sends."""

from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from stateward.schemas.access import IssuedView, TokenView
from stateward.schemas.deployment import HealedView, LanesView, PrunedView, StuckView, WorkerView
from stateward.schemas.journal import LinePage
from stateward.schemas.objects import AllowedView, NamespaceView, ObjectPage, ObjectView
from stateward.schemas.operations import GroupView, OperationPage, OperationView, Prospect
from stateward.schemas.waiting import WhyView
from tests.integration.cli.cli_server import CliServer


@pytest.fixture
def http(cli: CliServer) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {cli.token}"}
    with httpx.Client(base_url=f"{cli.url}/api/v1", headers=headers, verify=False) as client:
        yield client


def keys(value: Any) -> Any:
    match value:
        case dict():
            return {name: keys(one) for name, one in value.items()}
        case list():
            return [keys(one) for one in value]
        case _:
            return None


def test_no_field_of_any_answer_is_lost(cli: CliServer, http: httpx.Client) -> None:
    cli.built("p1", parent="s1", tier="web")
    cli.run("create", "station", "s1")
    cli.run("do", "tune", "p1", "--wait")
    cli.routed("p1", capacity=0)
    op = cli.json("do", "tune", "p1")[0]["operation"]["id"]
    at = f"/ns/{cli.ns}"
    act = {"requests": [{"object": "p1", "action": "tune"}, {"object": "s1", "action": "pump"}]}
    asked: list[tuple[Any, httpx.Response]] = [
        (ObjectView, http.get(f"{at}/objects/p1")),
        (ObjectPage, http.get(f"{at}/objects")),
        (AllowedView, http.get(f"{at}/objects/p1/allowed")),
        (LinePage, http.get(f"{at}/objects/p1/history")),
        (WhyView, http.get(f"{at}/objects/p1/why")),
        (list[Prospect], http.post(f"{at}/plan", json=act)),
        (OperationView, http.get(f"{at}/operations/{op}")),
        (OperationPage, http.get(f"{at}/operations", params={"object": "p1"})),
        (OperationView, http.post(f"{at}/operations/{op}/cancel")),
        (GroupView, http.post(f"{at}/actions/tune", json={"selector": {"q": "p"}})),
        (LanesView, http.get("/lanes")),
        (list[WorkerView], http.get("/workers")),
        (list[StuckView], http.get("/stuck")),
        (HealedView, http.post("/heal")),
        (PrunedView, http.post("/prune", json={"older": 3600, "dry_run": True})),
        (list[NamespaceView], http.get("/namespaces")),
        (IssuedView, http.post("/tokens", json={"name": "x", "role": "viewer", "namespaces": ["a"]})),
        (list[TokenView], http.get("/tokens")),
    ]
    for answer, response in asked:
        assert response.is_success, response.text
        read = msgspec.to_builtins(msgspec.json.decode(response.content, type=answer))
        assert keys(read) == keys(response.json()), answer
