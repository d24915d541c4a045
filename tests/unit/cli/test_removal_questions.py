"""One rule for all commands that remove something: they ask at a terminal, unless `--yes` is said."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from stateward.cli.main import app
from stateward.client import confirmation
from stateward.client.api import ApiClient
from stateward.client.http import HttpConnection
from stateward.client.session import Session
from stateward.client.target import Secret
from stateward.client.transport import HttpRequest, HttpResponse
from stateward.schemas.preview import PreviewView
from tests.unit.cli.sample_records import sample_object
from tests.unit.cli.scripted_transport import ScriptedTransport, json_response

PREVIEW = PreviewView("delete", True, None, 1, [], [], [], 0, [], True, None, None, [])
TIMES = {"start_date": "2030-01-01T00:00:00.000000", "end_date": "2030-01-02T00:00:00.000000"}
LEASE = {"id": "l1", "name": "l1", "status": "ACTIVE", "degraded": False, "user_id": "", "project_id": "", **TIMES}
HOST = {"hypervisor_hostname": "h1", "status": "up", "vcpus": 1, "memory_mb": 1, "local_gb": 1, "reservable": True}

REMOVALS = (
    "edge cloudlet delete oslo",
    "edge clusterinst delete oslo/k8s",
    "edge appinst delete oslo/k8s/web --ignore transient",
    "edge flavor delete small",
    "edge app delete web",
    "lease delete l1",
    "lease end l1",
    "lease host remove h1",
    "ovc delete vm-1",
    "ovc destroy vm-1",
    "ovc decommission node-1",
    "mci namespace delete shop",
    "mci connection remove aws",
    "mci spec remove small",
    "mci image remove debian",
    "system delete shop",
    "system teardown shop",
)


def answer(request: HttpRequest) -> HttpResponse:
    """Answer reads and previews; a removal that gets through ends the command with an error of its own."""
    if "/preview" in request.target:
        return json_response(200, PREVIEW)
    if request.method != "GET":
        return json_response(409, {"title": "Conflict", "status": 409, "detail": "it was sent"})
    if "/leases" in request.target:
        return json_response(200, {"leases": [{**LEASE, "reservations": [], "events": []}]})
    if "/os-hosts" in request.target:
        return json_response(200, {"host": HOST})
    return json_response(200, sample_object())


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[HttpRequest]:
    """Return the requests of a command whose user is at a terminal and says no to every question."""
    transport = ScriptedTransport(answer)

    @contextmanager
    def connect(*args: object) -> Iterator[ApiClient]:
        del args
        yield ApiClient(HttpConnection("http://s", Secret(""), transport))

    def is_person_asked(session: Session) -> bool:
        return not (session.yes or session.json)

    monkeypatch.setattr("stateward.client.session.connect", connect)
    monkeypatch.setattr(confirmation, "asks", is_person_asked)
    monkeypatch.setattr("typer.confirm", lambda *args, **more: False)
    return transport.sent


def changes(sent: list[HttpRequest]) -> list[HttpRequest]:
    return [one for one in sent if one.method != "GET" and "/preview" not in one.target]


@pytest.mark.parametrize("words", REMOVALS)
def test_a_removal_is_asked_for_unless_yes_is_said(words: str, sent: list[HttpRequest]) -> None:
    where = ("--server", "http://s", "-n", "ns")
    refused = CliRunner().invoke(app, [*words.split(), *where])
    assert (refused.exit_code, changes(sent)) == (1, []), refused.output
    assert "Nothing was changed." in refused.stderr
    CliRunner().invoke(app, [*words.split(), *where, "--yes"])
    assert len(changes(sent)) == 1
