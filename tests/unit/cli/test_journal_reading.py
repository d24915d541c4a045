"""Clients read the journal from where they have read it, whether or not a line matched."""

from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

from stateward.client.api import ApiClient
from stateward.client.http import HttpConnection
from stateward.client.operation_waiter import IN_TURN, OperationWaiter
from stateward.client.session import Session
from stateward.client.target import Secret
from stateward.client.transport import HttpRequest, HttpResponse
from stateward.domains.leases.cli.commands import _find_in_journal
from tests.unit.cli.sample_records import sample_operation
from tests.unit.cli.scripted_transport import ScriptedTransport, json_response


def client(pages: Iterator[object], asked: list[dict[str, str]]) -> ApiClient:
    """Return a client of a server that answers with these pages of the journal, and records what is asked."""

    def answer(request: HttpRequest) -> HttpResponse:
        asked.append(dict(parse_qsl(urlsplit(request.target).query)))
        return json_response(200, next(pages))

    return ApiClient(HttpConnection("http://s", Secret(""), ScriptedTransport(answer)))


def test_a_page_without_lines_moves_on_to_where_the_server_has_read() -> None:
    asked: list[dict[str, str]] = []
    pages = iter([{"items": [], "next": "100000", "seq": 100000}, {"items": [], "next": None, "seq": 123456}])
    waiter = OperationWaiter(client(pages, asked), "ns", [sample_operation(id=f"op{n}") for n in range(IN_TURN + 1)])
    assert waiter._news() == waiter._news() == set()
    assert (asked[1]["after"], waiter._after) == ("100000", 123456)


def test_a_server_that_does_not_report_how_far_it_has_read_is_asked_again() -> None:
    assert client(iter([{"items": [], "next": None}]), []).journal(7).after == 7


def test_a_lease_is_found_by_its_id_without_reading_the_journal_of_all() -> None:
    line = {"seq": 5, "ns": "ns", "object": "l1", "kind": "leases.lease", "op": None, "at": "2026-01-01T00:00:00Z"}
    line |= dict.fromkeys(("actor", "who", "event"), "x") | dict.fromkeys(("source", "target", "reason", "spec"))
    asked: list[dict[str, str]] = []
    pages = iter([{"items": [line], "next": "5", "seq": 5}])
    assert _find_in_journal(Session(client(pages, asked), "ns", json=False), "l1") == ["l1"]
    assert asked[0]["object"] == "l1"
