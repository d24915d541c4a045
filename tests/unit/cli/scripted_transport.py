"""A transport with scripted responses, for tests of the client."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from stateward.client.transport import HttpRequest, HttpResponse

Answer = Callable[[HttpRequest], HttpResponse]


def json_response(status: int, value: Any, **headers: str) -> HttpResponse:
    return HttpResponse(status, headers, msgspec.json.encode(value))


class ScriptedTransport:
    """Answers requests with a function, and records them."""

    def __init__(self, answer: Answer) -> None:
        self.sent: list[HttpRequest] = []
        self._answer = answer

    def send(self, request: HttpRequest) -> HttpResponse:
        self.sent.append(request)
        return self._answer(request)

    @contextmanager
    def stream(self, request: HttpRequest, patience: float | None) -> Iterator[tuple[HttpResponse, Iterator[str]]]:
        found = self.send(request)
        yield found, iter(found.body.decode().splitlines())

    def close(self) -> None:
        pass
