"""The client of Compute Engine: calls in its own thread pool, each counted, and operations followed to their end.

The library blocks. The event loop's default pool has a few threads per processor, for the whole server. These calls
mostly wait for the network, so they have a pool of 32 threads. Between two looks at an operation no thread waits.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from stateward.drivers.call_threads import CallThreads
from stateward.drivers.gcp.errors import (
    STALE_CREDENTIAL,
    GceCallFailed,
    classify_error,
    failed_operation,
    is_read_only,
    not_connected,
)
from stateward.drivers.gcp.gce_settings import GceSettings, read_settings
from stateward.drivers.gcp.google_sdk import SDK_ERRORS, connect
from stateward.drivers.gcp.service_accounts import ServiceAccount, read_service_account
from stateward.drivers.port import CallUnanswered, Meter, ProviderRegion, TransientFailure
from stateward.errors import BadInput, StatewardError

THREADS = 32

POLL_FIRST_S, POLL_MAX_S, POLL_FACTOR = 0.1, 3.0, 1.5
"""The intervals between two looks at an operation: the first, the longest, and how they grow."""

SCOPE_FIELDS = {
    "instances": "zone",
    "machine_types": "zone",
    "region_operations": "region",
    "subnetworks": "region",
    "zone_operations": "zone",
}
"""The field of a service's requests that says where its resources are; the others are global."""


class GceClient:
    """Calls to Compute Engine in one zone of one project."""

    def __init__(self, provider_region: ProviderRegion, meter: Meter) -> None:
        self._provider_region = provider_region
        self._meter = meter
        self._threads = CallThreads(THREADS, f"gcp-{provider_region.region}")
        self._account = ServiceAccount()
        self._clients: dict[str, Any] = {}
        self._settings: GceSettings | None = None
        self._connecting = asyncio.Lock()

    async def settings(self) -> GceSettings:
        """Return the settings of the region, with the project; raises `GceCallFailed`."""
        await self._connected("settings")
        assert self._settings is not None
        return self._settings

    async def call(self, name: str, **fields: object) -> Any:  # noqa: ANN401 - the library's types
        """Make one call; raises only `GceCallFailed`, also for an operation that has failed already."""
        clients = await self._connected(name)
        self._meter(name)
        try:
            answer = await self._in_thread(name, partial(self._request, clients, name, fields))
        except SDK_ERRORS as error:
            failed = classify_error(name, error)
            if failed.status == STALE_CREDENTIAL:
                self._clients = {}
            raise self._without_secrets(failed) from None
        if not is_read_only(name) and (failure := failed_operation(name, answer)):
            raise self._without_secrets(failure)
        return answer

    async def change(self, name: str, **fields: object) -> None:
        """Make a call, and follow its operation to the end; raises as `call` does."""
        await self._finish(name, await self.call(name, **fields))

    async def pages(self, name: str, **fields: object) -> AsyncIterator[Any]:
        """Yield the pages of a listing, one call for each; raises as `call` does."""
        while True:
            page = await self.call(name, **fields)
            yield page
            if not page.next_page_token:
                return
            fields["page_token"] = page.next_page_token

    async def operation(self, name: str) -> Any:  # noqa: ANN401
        """Return an operation on an instance."""
        return await self.call("zone_operations.get", operation=name)

    async def close(self) -> None:
        """Close the threads and connections; calls under way end within their time-outs."""
        self._threads.close()
        for client in self._clients.values():
            client.transport.close()

    async def _finish(self, call: str, operation: Any) -> None:  # noqa: ANN401
        """Wait until an operation is done; a look that fails proves nothing, so the next one follows."""
        settings = await self.settings()
        pause, left = POLL_FIRST_S, settings.operation_timeout_s
        while not is_finished(operation):
            if left <= 0:
                running = CallUnanswered("", f"operation {operation.name} still runs after its time-out")
                raise GceCallFailed(call, 0, "", running)
            await asyncio.sleep(pause)
            left, pause = left - pause, min(POLL_MAX_S, pause * POLL_FACTOR)
            try:
                operation = await self.call(f"{_operations_of(operation)}.get", operation=operation.name)
            except GceCallFailed as failed:
                if self._threads.is_closed:
                    raise GceCallFailed(call, 0, failed.code, CallUnanswered("", "the driver is closed")) from None
        if failure := failed_operation(call, operation):
            raise self._without_secrets(failure)

    def _request(self, clients: dict[str, Any], name: str, fields: dict[str, object]) -> Any:  # noqa: ANN401
        """Send one request, in a thread."""
        assert self._settings is not None
        service, _, method = name.partition(".")
        request: dict[str, object] = {"project": self._settings.project}
        scope = SCOPE_FIELDS.get(service)
        if scope and method != "aggregated_list":
            request[scope] = getattr(self._settings, scope)
        send = getattr(clients[service], method if is_read_only(name) else f"{method}_unary")
        answer = send(request=request | fields, retry=None, timeout=self._settings.read_timeout_s)
        return next(iter(answer.pages)) if method.endswith("list") else answer

    async def _connected(self, name: str) -> dict[str, Any]:
        async with self._connecting:
            try:
                if not self._clients:
                    self._clients = await self._in_thread(name, self._connect)
            except (*SDK_ERRORS, StatewardError) as error:
                failed = error if isinstance(error, GceCallFailed) else not_connected(name, error)
            else:
                return self._clients
        raise self._without_secrets(failed)

    def _connect(self) -> dict[str, Any]:
        settings = read_settings(self._provider_region)
        self._account = self._read_account(settings)
        clients, project = connect(settings, self._account, THREADS)
        self._settings = replace(settings, project=settings.project or project)
        if not self._settings.project:
            raise BadInput("project", "", "an option of the connection: the credential names none")
        return clients

    def _read_account(self, settings: GceSettings) -> ServiceAccount:
        reference = self._provider_region.credential
        if settings.is_anonymous:
            return ServiceAccount()
        if settings.endpoint_url and not reference:
            means = "a reference, if there is an endpoint_url: the server's own credential is for Google alone"
            raise BadInput("credential", reference, means)
        return read_service_account(reference)

    async def _in_thread(self, name: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401
        closed = GceCallFailed(name, 0, "Closed", TransientFailure("", "the driver is closed"))
        return await self._threads.run(work, closed)

    def _without_secrets(self, failed: GceCallFailed) -> GceCallFailed:
        outcome = replace(failed.outcome, message=self._account.hide(failed.outcome.message))
        return GceCallFailed(failed.call, failed.status, failed.code, outcome)


def is_finished(operation: Any) -> bool:  # noqa: ANN401
    """Tell whether an operation has ended, well or badly."""
    return bool(operation.status == type(operation).Status.DONE)


def _operations_of(operation: Any) -> str:  # noqa: ANN401
    """Return the service that shows an operation."""
    if operation.zone:
        return "zone_operations"
    return "region_operations" if operation.region else "global_operations"
