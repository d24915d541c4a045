"""The client of a cloud: calls in its own thread pool, each counted, with one kind of error.

openstacksdk blocks. The event loop's default pool has a few threads per processor, for the whole server. These calls
mostly wait for the network, so they have a pool of 32 threads.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from stateward.drivers.call_threads import CallThreads
from stateward.drivers.openstack.errors import OpenStackCallFailed, classify_answer, classify_error, not_connected
from stateward.drivers.openstack.keystone_login import KeystoneLogin, read_login
from stateward.drivers.openstack.openstack_sdk import SDK_ERRORS, CloudSession, HttpAnswer, NotSent, open_session
from stateward.drivers.port import CallUnanswered, Meter, ProviderRegion, RefusalReason, TransientFailure
from stateward.errors import StatewardError

THREADS = 32

Result = TypeVar("Result")


class ApiCall(Struct, frozen=True):
    """One request: its name for meters and messages, the service, method and path, and what is sent."""

    name: str
    service: Literal["compute", "network", "image"]
    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    body: object = None
    params: Mapping[str, str] = {}

    @property
    def reads(self) -> bool:
        """Whether the call changes nothing."""
        return self.method == "GET"


class OpenStackClient:
    """Calls to the services of one region."""

    def __init__(self, provider_region: ProviderRegion, meter: Meter) -> None:
        self._region = provider_region
        self._meter = meter
        self._threads = CallThreads(THREADS, f"openstack-{provider_region.region}")
        self._login = KeystoneLogin()
        self._session: CloudSession | None = None
        self._connecting = asyncio.Lock()

    async def call(self, call: ApiCall) -> HttpAnswer:
        """Make one call, and return its answer; raises only `OpenStackCallFailed`."""
        session = await self._connected(call.name)
        self._meter(call.name)
        try:
            answer = await self._in_thread(
                call.name, lambda: session.send(call.service, call.method, call.path, call.params, call.body)
            )
        except (*SDK_ERRORS, NotSent) as error:
            raise self._failure(classify_error(call.name, error, reads=call.reads)) from None
        if 200 <= answer.status < 300:
            return answer
        raise self._failure(classify_answer(call.name, answer, reads=call.reads))

    async def record(self, call: ApiCall, field: str) -> dict[str, Any]:
        """Make one call, and return the record in its answer; raises as `call` does."""
        answer = await self.call(call)
        record = answer.body.get(field) if isinstance(answer.body, dict) else None
        if isinstance(record, dict):
            return record
        text = f"the answer has no {field}"
        outcome = TransientFailure("", text) if call.reads else CallUnanswered("", text)
        raise OpenStackCallFailed(call.name, "NoRecord", outcome)

    async def project_id(self) -> str:
        """Return the id of the project that the login is for; raises as `call` does."""
        session = await self._connected("project")
        try:
            return await self._in_thread("project", session.project_id)
        except NotSent as error:
            raise self._failure(classify_error("project", error, reads=True)) from None

    async def pages(self, call: ApiCall, field: str) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield the pages of a listing as their links say, one call for each; raises as `call` does."""
        while True:
            answer = await self.call(call)
            yield records_in(call, answer, field)
            if (marker := _next_marker(answer.body, field)) is None:
                return
            call = replace(call, params={**call.params, "marker": marker})

    async def close(self) -> None:
        """Close the threads and connections; calls under way end within their time-outs."""
        self._threads.close()
        if self._session is not None:
            self._session.close()

    async def _connected(self, name: str) -> CloudSession:
        async with self._connecting:
            try:
                if self._session is None:
                    self._session = await self._in_thread(name, self._connect)
            except OpenStackCallFailed:
                raise
            except (*SDK_ERRORS, StatewardError, ValueError, TypeError) as error:
                raise self._without_secrets(not_connected(name, error)) from None
            return self._session

    def _connect(self) -> CloudSession:
        self._login = read_login(self._region.credential)
        return open_session(self._region, self._login, THREADS)

    async def _in_thread(self, name: str, work: Callable[[], Result]) -> Result:
        closed = OpenStackCallFailed(name, "Closed", TransientFailure("", "the driver is closed"))
        return await self._threads.run(work, closed)

    def _failure(self, failed: OpenStackCallFailed) -> OpenStackCallFailed:
        """Return a failure without secrets; a login that was rejected is read again at the next call."""
        if failed.why is RefusalReason.AUTH and failed.code in ("401", "Unauthorized"):
            self._session = None
        return self._without_secrets(failed)

    def _without_secrets(self, failed: OpenStackCallFailed) -> OpenStackCallFailed:
        outcome = replace(failed.outcome, message=self._login.hide(failed.outcome.message))
        return OpenStackCallFailed(failed.call, failed.code, outcome)


def records_in(call: ApiCall, answer: HttpAnswer, field: str) -> list[dict[str, Any]]:
    """Return the records of a page; raises `OpenStackCallFailed` for an answer without any, such as a proxy's page."""
    records = answer.body.get(field) if isinstance(answer.body, dict) else None
    if not isinstance(records, list):
        raise OpenStackCallFailed(call.name, "NoListing", TransientFailure("", f"the answer has no {field}"))
    return records


def has_next_page(answer: HttpAnswer, field: str) -> bool:
    """Tell whether a page has a link to the next one."""
    return _next_marker(answer.body, field) is not None


def _next_marker(body: Mapping[str, Any], field: str) -> str | None:
    """Return where the next page begins, if there is one: as Nova and Neutron link it, and as Glance does."""
    links = [str(one.get("href", "")) for one in body.get(f"{field}_links", ()) if one.get("rel") == "next"]
    found = links or [str(body["next"])] if links or body.get("next") else []
    return next((value for link in found for name, value in parse_qsl(urlsplit(link).query) if name == "marker"), None)
