"""A name that nobody knows is an error in every command that takes it, also where the server answers with nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from stateward.cli.main import app
from stateward.client.api import ApiClient
from stateward.client.http import HttpConnection
from stateward.client.target import Secret
from stateward.client.transport import HttpRequest, HttpResponse
from tests.unit.cli.scripted_transport import ScriptedTransport, json_response

UNKNOWN = "unknown namespace 'dmeo'; did you mean 'demo'?"
EMPTY = {"leases": {"leases": []}, "os-hosts": {"hosts": []}, "kinds": [], "clusterinsts": []}


def answer(request: HttpRequest) -> HttpResponse:
    """Answer with nothing, or that there is no such thing, as a server does of which nobody has asked anything."""
    path, is_in_dmeo = urlsplit(request.target).path, "/dmeo/" in request.target
    if request.method == "POST":
        return json_response(409, {"title": "no members", "status": 409, "detail": "'suspend' has no members"})
    if path.endswith("/objects") and is_in_dmeo:
        return json_response(404, {"title": "unknown name", "status": 404, "detail": UNKNOWN})
    if path.endswith("/nothing"):
        return json_response(404, {"title": "not found", "status": 404, "detail": "there is no 'nothing'"})
    return json_response(200, EMPTY.get(path.rpartition("/")[2], {"items": [], "next": None}))


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str]:
    @contextmanager
    def connect(*args: object) -> Iterator[ApiClient]:
        del args
        yield ApiClient(HttpConnection("http://s", Secret(""), ScriptedTransport(answer)))

    monkeypatch.setattr("stateward.client.session.connect", connect)
    done = CliRunner().invoke(app, [*words, "--server", "http://s"])
    return done.exit_code, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "watch",
        "lease list",
        "lease calendar",
        "lease host list",
        "protect --namespace-flag",
        "do suspend --selector q=a",
    ],
)
def test_an_unknown_namespace_is_told_with_the_nearest_name(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    code, said = run(monkeypatch, *words.split(), "-n", "dmeo")
    assert (code, UNKNOWN in " ".join(said.split())) == (2, True), said


@pytest.mark.parametrize(
    "words",
    [
        "operations --object nothing",
        "operations --group nothing",
        "list --parent nothing",
        "edge clusterinst show --cloudlet nothing",
    ],
)
def test_an_unknown_object_is_told_by_a_filter(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    code, said = run(monkeypatch, *words.split())
    assert (code, "there is no 'nothing'" in said) == (2, True), said


def test_a_filter_of_one_namespace_is_not_dropped_in_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = run(monkeypatch, "operations", "-A", "--object", "o1")
    assert (code, "--object: 'o1' must be left out" in said) == (2, True), said


def test_the_usage_names_arguments_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Usage: root logs [OPTIONS] OPERATION\n" in run(monkeypatch, "logs")[1]
