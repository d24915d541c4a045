from collections.abc import Callable

import httpx
import pytest

from stateward.client.errors import AnswerUnreadable, ApiError, NotOurs, Unreachable, exit_code_for
from stateward.client.http import PATIENCE, PAUSES, HttpConnection
from stateward.client.target import Secret
from stateward.client.url_paths import url_path
from stateward.errors import BadInput
from stateward.naming import IDEMPOTENCY_HEADER

Answer = Callable[[httpx.Request], httpx.Response]


class ScriptedConnection:
    """A connection with scripted responses; records the requests and pauses."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.sent: list[httpx.Request] = []
        self.pauses: list[float] = []
        self._answers = list(answers)
        self.http = HttpConnection(
            "http://s", Secret("tok"), httpx.MockTransport(self._answer), pause=self.pauses.append
        )

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


BROKEN = httpx.ConnectError("refused")
FINE = httpx.Response(200, json={"a": 1})


def test_the_token_and_the_base_go_with_every_request() -> None:
    connection = ScriptedConnection(FINE)
    assert connection.http.call(dict[str, int], "GET", url_path("kinds"), params={"q": "x", "kind": None}) == {"a": 1}
    assert str(connection.sent[0].url) == "http://s/api/v1/kinds?q=x"
    assert connection.sent[0].headers["Authorization"] == "Bearer tok"


def test_reading_is_tried_again_when_the_connection_breaks() -> None:
    connection = ScriptedConnection(BROKEN, httpx.ReadError("reset"), FINE)
    assert connection.http.call(dict[str, int], "GET", url_path("kinds")) == {"a": 1}
    assert connection.pauses == list(PAUSES)


def test_a_request_that_might_have_taken_effect_is_not_repeated() -> None:
    connection = ScriptedConnection(BROKEN, FINE)
    with pytest.raises(Unreachable, match="refused"):
        connection.http.call(dict[str, int], "POST", url_path("heal"))
    assert len(connection.sent) == 1


def test_a_request_with_a_key_is_repeated_with_the_same_key() -> None:
    connection = ScriptedConnection(BROKEN, FINE)
    connection.http.call(
        dict[str, int], "POST", url_path("ns", "a", "objects"), body={"id": "x"}, headers={IDEMPOTENCY_HEADER: "k1"}
    )
    assert [(one.headers[IDEMPOTENCY_HEADER], one.content) for one in connection.sent] == [("k1", b'{"id":"x"}')] * 2


def test_a_server_that_never_answers_is_given_up() -> None:
    connection = ScriptedConnection(BROKEN)
    with pytest.raises(Unreachable) as caught:
        connection.http.call(dict[str, int], "GET", url_path("kinds"))
    assert (caught.value.exit_code, caught.value.url, len(connection.sent)) == (3, "http://s", 1 + len(PAUSES))


def test_a_slow_server_is_not_asked_again() -> None:
    connection = ScriptedConnection(httpx.ReadTimeout("slow"))
    with pytest.raises(Unreachable, match="too long"):
        connection.http.call(dict[str, int], "GET", url_path("kinds"))
    assert len(connection.sent) == 1


def test_who_comes_too_fast_waits_as_long_as_the_server_says() -> None:
    connection = ScriptedConnection(
        httpx.Response(429, headers={"Retry-After": "2"}, json={"detail": "slow down"}), FINE
    )
    assert connection.http.call(dict[str, int], "POST", url_path("heal")) == {"a": 1}
    assert connection.pauses == [2.0]


def test_who_always_comes_too_fast_is_told_in_the_end() -> None:
    connection = ScriptedConnection(httpx.Response(429, headers={"Retry-After": "soon"}, json={"detail": "slow down"}))
    with pytest.raises(ApiError, match="slow down"):
        connection.http.call(dict[str, int], "GET", url_path("kinds"))
    assert len(connection.sent) == PATIENCE


def test_a_problem_is_raised_with_its_facts() -> None:
    connection = ScriptedConnection(
        httpx.Response(409, json={"detail": "no", "code": "refused", "allowed": ["resume"]})
    )
    with pytest.raises(ApiError) as caught:
        connection.http.call(dict[str, int], "GET", url_path("x"))
    assert caught.value.facts()["allowed"] == ["resume"]
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>hello</html>"),
        httpx.Response(200, json={"a": "text"}),
        httpx.Response(502, text="Bad gateway"),
        httpx.Response(302, headers={"Location": "http://elsewhere"}),
    ],
)
def test_what_is_no_server_of_ours_is_told_apart(answer: httpx.Response) -> None:
    with pytest.raises(NotOurs) as caught:
        ScriptedConnection(answer).http.call(dict[str, int], "GET", url_path("x"))
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_an_unreadable_answer_to_a_request_that_took_effect_is_not_called_no_server(method: str) -> None:
    with pytest.raises(AnswerUnreadable, match="may have taken effect") as caught:
        ScriptedConnection(httpx.Response(200, json={"a": "text"})).http.call(dict[str, int], method, url_path("x"))
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
    connection = ScriptedConnection(httpx.Response(200, text="data: a\n\ndata: b\n\n"))
    with connection.http.stream_lines(url_path("events"), None, 1.0) as lines:
        assert list(lines) == ["data: a", "", "data: b", ""]


def test_a_stream_that_is_refused_raises_the_problem() -> None:
    connection = ScriptedConnection(httpx.Response(404, json={"detail": "no such operation"}))
    with (
        pytest.raises(ApiError, match="no such operation"),
        connection.http.stream_lines(url_path("events"), None, 1.0),
    ):
        pass


def test_text_is_read_as_it_is_and_a_problem_is_an_error() -> None:
    page = httpx.Response(200, text="$ORIGIN example.org.\n")
    assert ScriptedConnection(page).http.text(url_path("dns", "file")) == "$ORIGIN example.org.\n"
    problem = httpx.Response(404, json={"title": "t", "status": 404, "code": "not_found", "detail": "there is none"})
    with pytest.raises(ApiError, match="there is none"):
        ScriptedConnection(problem).http.text(url_path("dns", "file"))
