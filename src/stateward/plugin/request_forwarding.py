"""Requests that only another server of the deployment can answer: they are forwarded there, once.

The agent of a cloudlet or of a node has one connection, to one server. A request for logs or a command may arrive at
any server. It is forwarded with the caller's own credentials: the other server decides about the rights itself.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec
from litestar import Request
from litestar.exceptions import ClientException

from stateward.aio.certificates import trusted_certificates
from stateward.aio.supervise import cancel_tasks
from stateward.errors import StatewardError

T = TypeVar("T")
Call = Request[Any, Any, Any]

FORWARDED = "x-stateward-forwarded"
"""The header of a request that another server has forwarded; it is forwarded once only."""

HOP_HEADERS = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding", FORWARDED})
FORWARD_TIMEOUT_S = 700.0
"""Longer than any command may take."""


def is_forwarded(request: Call) -> bool:
    """Tell whether another server has forwarded a request; it must be answered here, or refused."""
    return FORWARDED in request.headers


async def forward_request(
    request: Call,
    url: str,
    form: type[T],
    refusal: Callable[[str], StatewardError],
    *,
    query: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> T:
    """Return the answer of the server at a URL; `query` and `body` replace those of the request.

    An error of that server, and its absence, become the error that `refusal` makes of the reason. Its `retry` is that
    of the other server; if that server does not answer, the request may succeed later, at another one.
    """
    import httpx  # its import takes 0.2 s of every start, and a server that is alone forwards nothing

    headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_HEADERS}
    asked = httpx.QueryParams(query) if query is not None else request.url.query
    target = httpx.URL(f"{url.rstrip('/')}{request.url.path}", query=str(asked).encode())
    content = await request.body() if body is None else body
    try:
        async with httpx.AsyncClient(timeout=FORWARD_TIMEOUT_S, verify=trusted_certificates()) as client:
            answer = await client.request(request.method, target, content=content, headers={**headers, FORWARDED: "1"})
        if answer.is_success:
            return msgspec.json.decode(answer.content, type=form)
        problem = msgspec.json.decode(answer.content, type=dict[str, Any])
    except (httpx.HTTPError, msgspec.MsgspecError) as error:
        why = f"its server at {url} does not answer ({type(error).__name__}); a command may have run or not"
        unanswered = refusal(why)
        unanswered.retry = True
        raise unanswered from error
    refused = refusal(str(problem.get("detail") or f"its server answers with {answer.status_code}"))
    refused.retry = problem.get("retry") is True
    raise refused


async def while_connected(request: Call, work: Coroutine[object, object, T]) -> T:
    """Return the result of some work, which is cancelled when the caller leaves."""
    await request.body()  # whatever comes after it tells that the caller has left
    tasks = asyncio.create_task(work), asyncio.create_task(_departure(request))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientException("the caller has left")  # which only the log of requests shows
        return await tasks[0]
    finally:
        await cancel_tasks(tasks)


async def _departure(request: Call) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
