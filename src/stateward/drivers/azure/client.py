"""The client of Azure Resource Manager: each call is one request, counted, with one kind of error.

A call is named as in the libraries, such as `compute.virtual_machines.begin_start`. Of a long-running operation it
returns the first answer. The libraries' poller is not used: without polling it says "succeeded" at once, and with
polling it waits inside the library.

Azure accepts a network interface at once, but a virtual machine cannot use it before it is provisioned. So the few
resources that another call depends on are waited for, by reading them. The wait is short and has a limit: a repeated
call continues where this one stopped.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeAlias, TypeVar

from stateward.drivers.azure.errors import classify_error
from stateward.drivers.azure.names import ArmScope, provisioning_of
from stateward.drivers.azure.sdk import SDK_ERRORS, ArmConnection, TokenFailed, load_clients
from stateward.drivers.azure.settings import AzureSettings, read_principal, read_settings
from stateward.drivers.cloud import errors
from stateward.drivers.port import Meter, ProviderRegion, RefusalReason, TransientFailure
from stateward.errors import StatewardError

MAX_CONCURRENT_CALLS = 32
CLOSE_WITHIN_S = 5.0
MAX_POLLS = 30
MAX_PAUSE_FACTOR = 5.0
UNFINISHED = ("Creating", "Updating")

ArmAnswer: TypeAlias = Mapping[str, Any]
"""An answer, with the names of the REST API."""

T = TypeVar("T")


class ArmClient:
    """Calls to Azure Resource Manager in one region."""

    def __init__(self, provider_region: ProviderRegion, meter: Meter) -> None:
        self._region = provider_region
        self._meter = meter
        self._classes = load_clients()
        self._connection: ArmConnection | None = None
        self._requests: dict[asyncio.Task[Any], ArmConnection] = {}
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
        self._closed = False

    async def call(self, name: str, *args: object, **parameters: object) -> ArmAnswer:
        """Make one call; raises only `CloudCallFailed`."""

        async def send(method: Callable[..., Awaitable[Any]]) -> ArmAnswer:
            if not name.rpartition(".")[2].startswith("begin_"):
                return await method(*args, **parameters) or {}
            poller = await method(*args, polling=False, **parameters)
            return await poller.result() or {}

        return await self._request(name, send)

    async def delete(self, name: str, *args: str) -> bool:
        """Delete a resource; returns whether there was one. Raises as `call` does."""

        async def send(method: Callable[..., Awaitable[Any]]) -> bool:
            polling = {"polling": False} if ".begin_" in name else {}
            answer = await method(*args, cls=lambda answer, *_: answer, **polling)
            answer = await answer.result() if polling else answer
            return bool(answer.http_response.status_code != 204)

        return bool(await errors.found_or_none(self._request(name, send)))

    async def pages(self, name: str, *args: object, **parameters: object) -> AsyncIterator[ArmAnswer]:
        """Yield the resources of a listing, one call for each page; raises as `call` does."""
        listing: Any = None

        async def next_page(method: Callable[..., Any]) -> list[ArmAnswer] | None:
            nonlocal listing
            listing = listing or method(*args, **parameters).by_page()
            try:
                return [answer async for answer in await anext(listing)]
            except StopAsyncIteration:
                return None

        while True:
            page = await self._request(name, next_page)
            for answer in page or ():
                yield answer
            if page is None or not listing.continuation_token:
                return

    async def find(self, operations: str, *names: str) -> Mapping[str, Any] | None:
        """Return a resource of a group of operations, such as `network.subnets`, or None; raises `CloudCallFailed`."""
        return await errors.found_or_none(self.call(f"{operations}.get", *names))

    async def wait_until_provisioned(
        self, shown: Mapping[str, Any] | None, operations: str, *names: str
    ) -> Mapping[str, Any]:
        """Wait until a resource is provisioned; raises `CloudCallFailed` if it fails, or is not there."""
        for number in range(MAX_POLLS):
            state = "" if shown is None else provisioning_of(shown)
            if shown is not None and state not in UNFINISHED:
                break
            await self._pause(number)
            shown = await self.find(operations, *names)
        else:
            raise _unfinished(operations, names, "is not provisioned yet")
        if state == "Succeeded" or not state:
            return shown
        if state == "Deleting":
            raise _unfinished(operations, names, "is being removed")
        text = f"{names[-1]} is {state}: remove it, and create it again"
        raise errors.refusal(f"{operations}.get", RefusalReason.CONFLICT, text)

    async def remove(self, operations: str, *names: str, delete: str = "begin_delete") -> bool:
        """Delete a resource, and wait until it is gone; returns whether there was one."""
        if not await self.delete(f"{operations}.{delete}", *names):
            return False
        for number in range(MAX_POLLS):
            if await self.find(operations, *names) is None:
                return True
            await self._pause(number)
        raise _unfinished(operations, names, "is still being removed")

    async def scope(self) -> ArmScope:
        """Return where the driver's resources are; raises as `call` does."""
        connection = self._connected("connect")
        settings = connection.settings
        return ArmScope(connection.principal.subscription, settings.group, settings.location)

    async def settings(self) -> AzureSettings:
        """Return the settings of the driver; raises as `call` does."""
        return self._connected("connect").settings

    async def close(self) -> None:
        """Close the connections; calls under way get some time to end, and are then without an answer."""
        self._closed = True
        connections = {*self._requests.values(), self._connection}
        if self._requests:
            _, late = await asyncio.wait([*self._requests], timeout=CLOSE_WITHIN_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in connections:
            if connection is not None:
                await connection.close()

    async def _request(self, name: str, send: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        async with self._slots:
            connection = self._connected(name)
            self._meter(name)
            member: Any = connection
            for part in name.split("."):
                member = getattr(member, part)
            task = asyncio.create_task(send(member))
            self._requests[task] = connection
            try:
                return await task
            except (*SDK_ERRORS, TokenFailed) as error:
                failed = classify_error(name, error)
                if failed.status == errors.REJECTED and self._connection is connection:
                    self._connection = None  # the next call reads the credential again: it may have been renewed
            except asyncio.CancelledError:
                if not self._closed or _is_cancelled():
                    raise
                failed = classify_error(name, ConnectionError("the driver was closed"))
            finally:
                del self._requests[task]
                if connection is not self._connection and connection not in self._requests.values():
                    await connection.close()
            raise failed.hiding(connection.principal.hide)

    async def _pause(self, number: int) -> None:
        """Wait before the next reading, longer each time: Azure counts the readings of all machines together."""
        await asyncio.sleep((await self.settings()).poll_interval * min(1 + number / 2, MAX_PAUSE_FACTOR))

    def _connected(self, name: str) -> ArmConnection:
        if self._closed:
            raise errors.driver_closed(name)
        if self._connection is None:
            hide: Callable[[str], str] = str
            try:
                principal = read_principal(self._region.credential)
                hide = principal.hide
                self._connection = ArmConnection(self._classes, read_settings(self._region), principal)
            except (StatewardError, ValueError) as error:
                raise errors.not_connected(name, error).hiding(hide) from None
        return self._connection


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _unfinished(operations: str, names: tuple[str, ...], problem: str) -> errors.CloudCallFailed:
    return errors.CloudCallFailed(f"{operations}.get", "Unfinished", TransientFailure("", f"{names[-1]} {problem}"))
