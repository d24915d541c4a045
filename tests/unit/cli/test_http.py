import socket
from http.client import RemoteDisconnected

import pytest

from stateward.client.errors import AnswerUnreadable, ApiError, NotOurs, ServerAbsent, Unreachable, exit_code_for
from stateward.client.http import PAGE_SIZE, PATIENCE, PAUSES, HttpConnection
from stateward.client.target import Secret
from stateward.client.transport import HttpRequest, HttpResponse, SocketTransport
from stateward.client.url_paths import url_path
from stateward.errors import BadInput
from stateward.naming import IDEMPOTENCY_HEADER
from tests.unit.cli.http_server import http_server
from tests.unit.cli.scripted_transport import ScriptedTransport, json_response


class ScriptedConnection:
    """A connection with scripted responses; records the requests and pauses."""

    def __init__(self, *answers: HttpResponse | Exception) -> None:
        self.pauses: list[float] = []
        self._answers = list(answers)
        transport = ScriptedTransport(self._answer)
        self.sent = transport.sent
        self.http = HttpConnection("http://s", Secret("tok"), transport, pause=self.pauses.append)

    def _answer(self, request: HttpRequest) -> HttpResponse:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


BROKEN = ConnectionResetError("reset")
ABSENT = ConnectionRefusedError("refused")
FINE = json_response(200, {"a": 1})


def test_the_token_and_the_base_go_with_every_request() -> None:
    connection = ScriptedConnection(FINE)
    assert connection.http.call(dict[str, int], "GET", url_path("kinds"), params={"q": "x", "kind": None}) == {"a": 1}
    assert connection.sent[0].target == "/api/v1/kinds?q=x"
    assert connection.sent[0].headers["Authorization"] == "Bearer tok"


def test_a_list_is_read_page_by_page_until_a_page_is_not_full() -> None:
    pages = [["a"] * (PAGE_SIZE - 1) + ["b"], ["c"] * PAGE_SIZE, []]
    connection = ScriptedConnection(*(json_response(200, page) for page in pages))
    assert connection.http.call_pages(list[str], url_path("kinds"), str, {"q": "x"}) == [*pages[0], *pages[1]]
    targets = [request.target for request in connection.sent]
    assert targets == [f"/api/v1/kinds?q=x&limit={PAGE_SIZE}{after}" for after in ("", "&after=b", "&after=c")]


@pytest.mark.parametrize("rows", [1, PAGE_SIZE, PAGE_SIZE + 1])
def test_a_list_of_a_server_that_does_not_know_its_pages_is_read_once(rows: int) -> None:
    connection = ScriptedConnection(json_response(200, ["a"] * rows))
    assert len(connection.http.call_pages(list[str], url_path("kinds"), str)) == rows


def test_reading_is_tried_again_when_the_connection_breaks() -> None:
    connection = ScriptedConnection(BROKEN, RemoteDisconnected("reset"), FINE)
    assert connection.http.call(dict[str, int], "GET", url_path("kinds")) == {"a": 1}
    assert connection.pauses == list(PAUSES)


def test_a_server_that_does_not_run_is_told_at_once_but_one_that_restarts_is_waited_for() -> None:
    connection = ScriptedConnection(ABSENT, FINE)
    with pytest.raises(ServerAbsent, match="connection refused"):
        connection.http.call(dict[str, int], "GET", url_path("kinds"))
    assert connection.pauses == []
    connection = ScriptedConnection(FINE, ABSENT, FINE)
    for _ in range(2):
        assert connection.http.call(dict[str, int], "GET", url_path("kinds")) == {"a": 1}
    assert len(connection.pauses) == 1


def test_a_request_that_might_have_taken_effect_is_not_repeated() -> None:
    connection = ScriptedConnection(BROKEN, FINE)
    with pytest.raises(Unreachable, match="reset"):
        connection.http.call(dict[str, int], "POST", url_path("heal"))
    assert len(connection.sent) == 1


def test_a_request_with_a_key_is_repeated_with_the_same_key() -> None:
    connection = ScriptedConnection(BROKEN, FINE)
    connection.http.call(
        dict[str, int], "POST", url_path("ns", "a", "objects"), body={"id": "x"}, headers={IDEMPOTENCY_HEADER: "k1"}
    )
    assert [(one.headers[IDEMPOTENCY_HEADER], one.body) for one in connection.sent] == [("k1", b'{"id":"x"}')] * 2


def test_a_server_that_never_answers_is_given_up() -> None:
    connection = ScriptedConnection(BROKEN)
    with pytest.raises(Unreachable) as caught:
        connection.http.call(dict[str, int], "GET", url_path("kinds"))
    assert (caught.value.exit_code, caught.value.url, len(connection.sent)) == (3, "http://s", 1 + len(PAUSES))


def test_a_slow_server_is_not_asked_again() -> None:
    connection = ScriptedConnection(TimeoutError("slow"))
    with pytest.raises(Unreachable, match="too long"):
        connection.http.call(dict[str, int], "GET", url_path("kinds"))
    assert len(connection.sent) == 1


def test_who_comes_too_fast_waits_as_long_as_the_server_says() -> None:
    connection = ScriptedConnection(json_response(429, {"detail": "slow down"}, **{"retry-after": "2"}), FINE)
    assert connection.http.call(dict[str, int], "POST", url_path("heal")) == {"a": 1}
    assert connection.pauses == [2.0]


def test_who_always_comes_too_fast_is_told_in_the_end() -> None:
    connection = ScriptedConnection(json_response(429, {"detail": "slow down"}, **{"retry-after": "soon"}))
    with pytest.raises(ApiError, match="slow down"):
        connection.http.call(dict[str, int], "GET", url_path("kinds"))
    assert len(connection.sent) == PATIENCE


def test_a_problem_is_raised_with_its_facts() -> None:
    connection = ScriptedConnection(json_response(409, {"detail": "no", "code": "refused", "allowed": ["resume"]}))
    with pytest.raises(ApiError) as caught:
        connection.http.call(dict[str, int], "GET", url_path("x"))
    assert caught.value.facts()["allowed"] == ["resume"]
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    "answer",
    [
        HttpResponse(200, body=b"<html>hello</html>"),
        json_response(200, {"a": "text"}),
        HttpResponse(502, body=b"Bad gateway"),
        HttpResponse(302, {"location": "http://elsewhere"}),
    ],
)
def test_what_is_no_server_of_ours_is_told_apart(answer: HttpResponse) -> None:
    with pytest.raises(NotOurs) as caught:
        ScriptedConnection(answer).http.call(dict[str, int], "GET", url_path("x"))
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_an_unreadable_answer_to_a_request_that_took_effect_is_not_called_no_server(method: str) -> None:
    with pytest.raises(AnswerUnreadable, match="may have taken effect") as caught:
        ScriptedConnection(json_response(200, {"a": "text"})).http.call(dict[str, int], method, url_path("x"))
    assert caught.value.exit_code == 1


def test_the_parts_of_a_path_are_quoted() -> None:
    assert url_path("ns", ("namespace", "a b"), "mci", ("MCI", "x?y#z%2e")) == "/ns/a%20b/mci/x%3Fy%23z%252e"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a/", "/", "a\n", "a" * 251])
def test_a_path_has_no_part_that_leads_elsewhere(name: str) -> None:
    with pytest.raises(BadInput, match="MCI") as caught:
        url_path("mci", ("MCI", name))
    assert exit_code_for(caught.value) == 2
    with pytest.raises(BadInput):
        url_path("mci", name)


def test_a_stream_yields_its_lines() -> None:
    connection = ScriptedConnection(HttpResponse(200, body=b"data: a\n\ndata: b\n\n"))
    with connection.http.stream_lines(url_path("events"), None, 1.0) as lines:
        assert list(lines) == ["data: a", "", "data: b", ""]


def test_a_stream_that_is_refused_raises_the_problem() -> None:
    connection = ScriptedConnection(json_response(404, {"detail": "no such operation"}))
    with (
        pytest.raises(ApiError, match="no such operation"),
        connection.http.stream_lines(url_path("events"), None, 1.0),
    ):
        pass


def test_text_is_read_as_it_is_and_a_problem_is_an_error() -> None:
    page = HttpResponse(200, body=b"$ORIGIN example.org.\n")
    assert ScriptedConnection(page).http.text(url_path("dns", "file")) == "$ORIGIN example.org.\n"
    problem = json_response(404, {"title": "t", "status": 404, "code": "not_found", "detail": "there is none"})
    with pytest.raises(ApiError, match="there is none"):
        ScriptedConnection(problem).http.text(url_path("dns", "file"))


# --- sockets ---------------------------------------------------------------------------------------------------------


def test_a_connection_is_kept_and_one_that_the_server_closed_is_opened_again() -> None:
    with http_server(b'{"a": 1}') as (url, seen):
        http = HttpConnection(f"{url}/prefix", Secret("tok"), direct=True)
        for name in ("one", "two", "once", "three"):
            assert http.call(dict[str, int], "GET", url_path(name)) == {"a": 1}
        with http.stream_lines(url_path("events"), None, 5.0) as lines:
            assert list(lines) == ['{"a": 1}']
        http.close()
    ports, paths = zip(*seen, strict=True)
    assert paths[:2] == ("/prefix/api/v1/one", "/prefix/api/v1/two")
    assert len(set(ports[:3])) == 1
    assert len(set(ports)) == 3


def test_a_request_goes_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server(b"") as (proxy, seen):
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("no_proxy", "inside.test")
        transport = SocketTransport("http://outside.test:8420", timeout=5.0, direct=False)
        transport.send(HttpRequest("GET", "/x"))
        transport.close()
        with pytest.raises(OSError):  # noqa: PT011 - the name of this host leads nowhere
            SocketTransport("http://inside.test", timeout=5.0, direct=False).send(HttpRequest("GET", "/x"))
    assert [path for _, path in seen] == ["http://outside.test:8420/x"]


def test_an_address_at_which_nobody_answers_is_named_with_the_reason() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(Unreachable, match=f"no server answers at {url}: connection refused. .stateward serve"):
        HttpConnection(url, Secret(""), pause=lambda _: None).call(object, "GET", url_path("x"))
