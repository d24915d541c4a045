"""A request that another server of the deployment has to answer."""

from typing import Any

import httpx
import pytest
from litestar import Litestar, Request, get
from litestar.testing import TestClient

from stateward.errors import StatewardError
from stateward.plugin.request_forwarding import forward_request


class Refused(StatewardError):
    why: str
    text = "{why}"


@get("/asked")
async def ask_other(request: Request[Any, Any, Any]) -> str:
    try:
        return await forward_request(request, "http://other", str, Refused)
    except Refused as error:
        return f"{error.retry}: {error}"


DIED = "its server at http://other does not answer (ReadError); a command may have run or not"


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (httpx.Response(200, json="done"), "done"),
        (httpx.ReadError("reset"), f"True: {DIED}"),
        (httpx.Response(409, json={"detail": "busy", "retry": True}), "True: busy"),
        (httpx.Response(409, json={"detail": "too old", "retry": False}), "False: too old"),
        (httpx.Response(403, json={"detail": "not for you"}), "False: not for you"),
    ],
)
def test_a_request_can_be_repeated_if_the_other_server_dies_or_says_so(
    monkeypatch: pytest.MonkeyPatch, outcome: httpx.Response | Exception, expected: str
) -> None:
    async def answer(*_: object, **__: object) -> httpx.Response:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(httpx.AsyncClient, "request", answer)
    with TestClient(Litestar([ask_other])) as client:
        assert client.get("/asked").text == expected
