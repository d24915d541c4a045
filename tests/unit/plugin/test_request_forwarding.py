"""Work that ends with its caller."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from litestar.exceptions import ClientException

from stateward.plugin.request_forwarding import while_connected


async def test_work_ends_when_its_caller_leaves_and_the_request_with_an_error_of_the_callers() -> None:
    """An error that nobody expects would put a traceback into the log for each caller that leaves."""
    work_ended = asyncio.Event()

    async def body() -> bytes:
        return b""

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            work_ended.set()

    request: Any = SimpleNamespace(body=body, receive=receive)
    with pytest.raises(ClientException):
        await while_connected(request, work())
    assert work_ended.is_set()
