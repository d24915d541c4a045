"""The server's application in this process and without a worker, for a data folder whose server does not run.

A folder is read and written by the same code whether a server runs or not: the same checks, the same responses.
Accepted operations are durable and wait for a worker.
"""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import httpx
from litestar import Litestar

from stateward.client.transport import HttpRequest, HttpResponse, Transport
from stateward.config import Config, choice_of_domains
from stateward.server.data_dir import DataDir, has_administrator
from stateward.server.run import open_application


@contextmanager
def in_process(folder: Path) -> Iterator[Transport]:
    """Run the application on a folder, on a thread of its own; yields the transport to it when it has started.

    A folder for which no administrator's token was ever issued gets one, as at the start of a server: a program that
    uses the library has made it.
    """
    application = InProcessApplication(folder)
    thread = Thread(target=application.run, name="local server")
    thread.start()
    try:
        application.wait_until_started()
        yield application
    finally:
        application.stop()
        thread.join()


class InProcessApplication:
    """The application on an event loop of its own; it is also the transport that sends requests to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._app: Future[Litestar] = Future()
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()

    def run(self) -> None:
        """Run until it is stopped; if it cannot start, `wait_until_started` raises the error."""
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            if self._app.done():
                raise
            self._app.set_exception(error)
        finally:
            self._loop.close()

    def wait_until_started(self) -> None:
        """Wait until it has started; raises if it cannot start."""
        self._app.result()

    def stop(self) -> None:
        """End it."""
        with suppress(RuntimeError):  # it could not start, so it has ended already
            self._loop.call_soon_threadsafe(self._stopped.set)

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request, wait for the response and return all of it."""
        app = self._app.result()
        return asyncio.run_coroutine_threadsafe(_respond(app, request), self._loop).result()

    @contextmanager
    def stream(self, request: HttpRequest, patience: float | None) -> Iterator[tuple[HttpResponse, Iterator[str]]]:
        """Yield a response as a whole: without a worker nothing happens that a stream could tell."""
        del patience
        response = self.send(request)
        yield response, iter(response.body.decode("utf-8", "replace").splitlines())

    async def _serve(self) -> None:
        domain, only = choice_of_domains({}, os.environ, None)
        config = Config(data=str(self._folder), worker=False, domain=domain, only=only)
        async with open_application(config) as parts, parts.app.lifespan():
            if not await has_administrator(parts.tokens):
                await DataDir(config).ensure_admin_token(parts.tokens)
            self._app.set_result(parts.app)
            await self._stopped.wait()


async def _respond(app: Litestar, request: HttpRequest) -> HttpResponse:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://local") as client:  # type: ignore[arg-type]
        response = await client.request(
            request.method, request.target, headers=dict(request.headers), content=request.body, timeout=None
        )
    headers = {name.lower(): value for name, value in response.headers.items()}
    return HttpResponse(response.status_code, headers, response.content, response.reason_phrase)
