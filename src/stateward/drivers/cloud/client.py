"""The client of a cloud whose library blocks: calls in a thread pool, each counted, with one kind of error.

The event loop's default pool has a few threads per processor, for the whole server. These calls mostly wait for the
network, so every client has a pool of 32 threads. A credential is read when the client connects, and again after the
cloud has rejected it; no error shows it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Generic, TypeVar

from stateward.drivers.cloud.errors import REJECTED, CloudCallFailed, driver_closed, not_connected
from stateward.drivers.cloud.settings import HiddenCredential
from stateward.drivers.port import Meter, ProviderRegion
from stateward.errors import StatewardError

THREADS = 32

Session = TypeVar("Session")
Result = TypeVar("Result")


class BlockingClient(Generic[Session]):
    """Calls to one region of a cloud through a library that blocks."""

    sdk_errors: ClassVar[tuple[type[Exception], ...]]
    login_errors: ClassVar[tuple[type[Exception], ...]] = ()
    """The errors of the library that mean: there is no credential to log in with."""

    def __init__(self, provider_region: ProviderRegion, meter: Meter, credential: HiddenCredential) -> None:
        self._region, self._meter = provider_region, meter
        self._credential = credential  # what `_connect` has read
        self._session: Session | None = None
        self._connecting = asyncio.Lock()
        self._pool = ThreadPoolExecutor(
            THREADS, thread_name_prefix=f"{provider_region.provider}-{provider_region.region}"
        )
        self._is_closed = False

    async def close(self) -> None:
        """Begin no more calls, and close the connections; calls under way end within their time-outs."""
        self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._session is not None:
            self._close(self._session)

    def _connect(self) -> Session:
        """Read the credential, and create the session; called in a thread."""
        raise NotImplementedError

    def _close(self, session: Session) -> None:
        """Close the connections of a session."""
        raise NotImplementedError

    async def _send(
        self, name: str, work: Callable[[Session], Result], classify: Callable[[str, Exception], CloudCallFailed]
    ) -> Result:
        """Count a call, and make it in a thread; raises only `CloudCallFailed`."""
        session = await self._connected(name)
        self._meter(name)
        return await self._request(name, lambda: work(session), classify)

    async def _request(
        self, name: str, work: Callable[[], Result], classify: Callable[[str, Exception], CloudCallFailed]
    ) -> Result:
        """Run a part of a call in a thread; raises only `CloudCallFailed`."""
        try:
            return await self._in_thread(name, work)
        except self.sdk_errors as error:
            raise self._failure(classify(name, error)) from None

    async def _connected(self, name: str) -> Session:
        expected: tuple[type[Exception], ...] = (*self.sdk_errors, StatewardError, ValueError, TypeError)
        async with self._connecting:
            try:
                if self._session is None:
                    self._session = await self._in_thread(name, self._connect)
            except CloudCallFailed:
                raise
            except expected as error:
                raise self._failure(not_connected(name, error, self.login_errors)) from None
            return self._session

    def _failure(self, failed: CloudCallFailed) -> CloudCallFailed:
        """Return a failure without secrets; after a rejected credential, the next call reads it again."""
        if failed.status == REJECTED:
            self._session = None
        return failed.hiding(self._credential.hide)

    async def _in_thread(self, name: str, work: Callable[[], Result]) -> Result:
        """Run work in a thread; raises `CloudCallFailed` if the driver is closed before that has begun."""
        if self._is_closed:
            raise driver_closed(name)
        future = self._pool.submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise driver_closed(name) from None  # it was still waiting for a thread
