"""The client of Compute Engine: calls in one zone of one project, and operations followed to their end.

Between two looks at an operation no thread waits.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from msgspec.structs import replace

from stateward.drivers.cloud.client import THREADS, BlockingClient
from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.gcp.errors import classify_error, failed_operation, is_read_only
from stateward.drivers.gcp.sdk import AUTH_ERRORS, SDK_ERRORS, connect, load_clients
from stateward.drivers.gcp.settings import GceSettings, ServiceAccount, read_service_account, read_settings
from stateward.drivers.port import CallUnanswered, Meter, ProviderRegion
from stateward.errors import BadInput

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


class GceClient(BlockingClient[dict[str, Any]]):
    """Calls to Compute Engine; a session has the library's clients by their services."""

    sdk_errors, login_errors = SDK_ERRORS, AUTH_ERRORS

    def __init__(self, provider_region: ProviderRegion, meter: Meter) -> None:
        super().__init__(provider_region, meter, ServiceAccount())
        self._classes = load_clients()
        self._settings: GceSettings | None = None

    async def settings(self) -> GceSettings:
        """Return the settings of the region, with the project; raises `CloudCallFailed`."""
        await self._connected("settings")
        assert self._settings is not None
        return self._settings

    async def call(self, name: str, **fields: object) -> Any:  # noqa: ANN401 - the library's types
        """Make one call; raises only `CloudCallFailed`, also for an operation that has failed already."""
        answer = await self._send(name, lambda clients: self._request_of(clients, name, fields), classify_error)
        if not is_read_only(name) and (failure := failed_operation(name, answer)):
            raise self._failure(failure)
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

    async def _finish(self, call: str, operation: Any) -> None:  # noqa: ANN401
        """Wait until an operation is done; a look that fails proves nothing, so the next one follows."""
        settings = await self.settings()
        pause, left = POLL_FIRST_S, settings.operation_timeout_s
        while not is_finished(operation):
            if left <= 0:
                running = CallUnanswered("", f"operation {operation.name} still runs after its time-out")
                raise CloudCallFailed(call, "", running)
            await asyncio.sleep(pause)
            left, pause = left - pause, min(POLL_MAX_S, pause * POLL_FACTOR)
            try:
                operation = await self.call(f"{_operations_of(operation)}.get", operation=operation.name)
            except CloudCallFailed as failed:
                if self._is_closed:
                    raise CloudCallFailed(call, failed.code, CallUnanswered("", "the driver is closed")) from None
        if failure := failed_operation(call, operation):
            raise self._failure(failure)

    def _request_of(self, clients: dict[str, Any], name: str, fields: dict[str, object]) -> Any:  # noqa: ANN401
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

    def _connect(self) -> dict[str, Any]:
        settings = read_settings(self._region)
        self._credential = account = self._read_account(settings)
        clients, project = connect(self._classes, settings, account, THREADS)
        self._settings = replace(settings, project=settings.project or project)
        if not self._settings.project:
            raise BadInput("project", "", "an option of the connection: the credential names none")
        return clients

    def _close(self, session: dict[str, Any]) -> None:
        for client in session.values():
            client.transport.close()

    def _read_account(self, settings: GceSettings) -> ServiceAccount:
        reference = self._region.credential
        if settings.is_anonymous:
            return ServiceAccount()
        if settings.endpoint_url and not reference:
            means = "a reference, if there is an endpoint_url: the server's own credential is for Google alone"
            raise BadInput("credential", reference, means)
        return read_service_account(reference)


def is_finished(operation: Any) -> bool:  # noqa: ANN401
    """Tell whether an operation has ended, well or badly."""
    return bool(operation.status == type(operation).Status.DONE)


def _operations_of(operation: Any) -> str:  # noqa: ANN401
    """Return the service that shows an operation."""
    if operation.zone:
        return "zone_operations"
    return "region_operations" if operation.region else "global_operations"
