import json
from urllib.parse import parse_qsl, urlsplit

import pytest
import typer
from rich.console import Console

from stateward.cli.commands.maintenance import _list_stuck
from stateward.cli.commands.why import MOST, _tree
from stateward.client.api import ApiClient
from stateward.client.arguments import ObjectRef, ObjectSelector
from stateward.client.http import HttpConnection
from stateward.client.session import Session
from stateward.client.target import Secret
from stateward.client.transport import HttpRequest, HttpResponse
from stateward.domains.mci.cli.commands import _terminate_orphans
from stateward.domains.mci.cli.tumblebug_calls import OrphanListing
from stateward.domains.mci.shared_schemas import OrphanMachine
from stateward.naming import IDEMPOTENCY_HEADER
from stateward.schemas.deployment import LaneView, LockView
from stateward.schemas.objects import ObjectPage
from stateward.schemas.operations import OperationView
from stateward.schemas.waiting import QueuedView, WaitReason, WhyView
from tests.unit.cli.sample_records import sample_object, sample_operation
from tests.unit.cli.scripted_transport import Answer, ScriptedTransport, json_response


def session(answers: Answer, *, as_json: bool = False) -> Session:
    return Session(ApiClient(HttpConnection("http://s", Secret(""), ScriptedTransport(answers))), "ns", json=as_json)


STUCK = {
    "ns": "ns",
    "object": "m1",
    "op": "op1",
    "action": "suspend",
    "state": "Suspending",
    "why": "its worker is dead",
    "deadline": "2026-11-15T00:00:00Z",
    "owner": "w",
    "attempts": 1,
}


def test_what_is_stuck_is_listed_and_exits_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    for as_json in (False, True):
        with pytest.raises(typer.Exit) as caught:
            _list_stuck(session(lambda _: json_response(200, [STUCK]), as_json=as_json))
        assert caught.value.exit_code == 1
        assert "its worker is dead" in capsys.readouterr().out


def operation(number: int) -> OperationView:
    return sample_operation(id=f"op{number}", object=f"o{number}", action="stop")


QUEUED = QueuedView(
    position=0,
    op="op5",
    object="d1",
    action="grow",
    who="",
    lane="",
    grp="",
    priority=0,
    attempts=0,
    owner=None,
    not_before=None,
    deadline=None,
    reason=WaitReason.RUNNING,
    text="a worker is at it",
)


def told(found: WhyView) -> str:
    kinds = json_response(200, [])
    console = Console(width=200, no_color=True)
    with console.capture() as captured:
        console.print(_tree(session(lambda _: kinds), found))
    return captured.get()


def test_why_tells_of_locks_queue_lane_and_children() -> None:
    found = WhyView(
        id="m1",
        kind="k",
        state="stopping",
        state_class=None,
        text="stop: locks are held by op7",
        reason=WaitReason.LOCKS,
        operation=operation(0),
        queue=[QUEUED],
        lane=LaneView(lane="aws/eu", grp="aws", capacity=3, running=2, waiting=False, throttled=4, back_off=None),
        locks=[LockView(tree="t", path="/a", mode="X", op="op7", waiting=False)],
        children=[operation(number) for number in range(MOST + 2)],
        parents=[],
    )
    shown = told(found)
    assert "locks are held by op7" in shown
    assert "grow on d1 (op5): a worker is at it" in shown
    assert "lane aws/eu: 2 of 3 running" in shown
    assert "operation op7 holds X on /a of t" in shown
    assert f"waits for {MOST + 2} children" in shown
    assert "and 2 more" in shown


def test_an_orphan_that_cannot_be_terminated_is_named_and_the_others_are_terminated() -> None:
    def answer(request: HttpRequest) -> HttpResponse:
        if json.loads(request.body or b"")["connection"] == "gone":
            return json_response(409, {"detail": "no answer"})
        return json_response(202, {"left": {"stuck": "terminate of stuck failed"}})

    machines = [("aws", "stuck"), ("aws", "stray"), ("gone", "lost")]
    found = OrphanListing([OrphanMachine(connection, key, "", "", "") for connection, key in machines])
    after = _terminate_orphans(session(answer), found)
    left = {"stuck": "terminate of stuck failed", "lost": "no answer"}
    assert (after.terminated, after.left) == (["stray"], left)


def test_names_are_quoted_in_paths_and_actions_carry_a_key() -> None:
    sent: list[HttpRequest] = []

    def answer(request: HttpRequest) -> HttpResponse:
        sent.append(request)
        return json_response(404, {"detail": "no"})

    client = session(answer).client
    for call in (
        lambda: client.act("a b", "ü?", "scale out", {}),
        lambda: client.set_lane("aws/eu west", "aws", 3),
        lambda: session(answer).find(ObjectRef("x#y")),
    ):
        with pytest.raises(Exception, match="no"):
            call()
    assert [one.target for one in sent] == [
        "/api/v1/ns/a%20b/objects/%C3%BC%3F/actions/scale%20out",
        "/api/v1/lanes/aws/eu%20west",
        "/api/v1/ns/ns/objects/x%23y",
    ]
    assert [IDEMPOTENCY_HEADER in one.headers for one in sent] == [True, False, False]


def test_pages_are_followed_to_the_end_or_to_the_limit() -> None:
    asked: list[dict[str, str]] = []

    def answer(request: HttpRequest) -> HttpResponse:
        params = dict(parse_qsl(urlsplit(request.target).query))
        asked.append(params)
        first = int(params.get("after", "0"))
        last = min(first + min(int(params["limit"]), 100), 250)
        items = [sample_object(id=str(n)) for n in range(first, last)]
        page = ObjectPage(items, str(last) if last < 250 else None)
        return json_response(200, page)

    client = session(answer).client
    assert len(list(client.objects("ns", ObjectSelector(labels={"a": "b"})))) == 250
    assert len(asked) == 3
    assert asked[0]["label"] == "a=b"
    assert len(list(client.objects("ns", ObjectSelector(), 120))) == 120
    assert [one["limit"] for one in asked[3:]] == ["120", "20"]
