"""The client of a cloud's Nova, Neutron and Glance."""

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from stateward.drivers.cloud.client import THREADS, BlockingClient
from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.openstack import sdk
from stateward.drivers.openstack.errors import classify_answer, classify_error
from stateward.drivers.openstack.settings import KeystoneLogin, read_login
from stateward.drivers.port import CallUnanswered, Meter, ProviderRegion, TransientFailure


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


class OpenStackClient(BlockingClient[sdk.CloudSession]):
    """Calls to the services of one region."""

    sdk_errors, login_errors = (*sdk.SDK_ERRORS, sdk.NotSent), sdk.LOGIN_ERRORS

    def __init__(self, provider_region: ProviderRegion, meter: Meter) -> None:
        super().__init__(provider_region, meter, KeystoneLogin())

    async def call(self, call: ApiCall) -> sdk.HttpAnswer:
        """Make one call, and return its answer; raises only `CloudCallFailed`."""
        answer = await self._send(
            call.name,
            lambda session: session.send(call.service, call.method, call.path, call.params, call.body),
            partial(classify_error, reads=call.reads),
        )
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
        raise CloudCallFailed(call.name, "NoRecord", outcome)

    async def project_id(self) -> str:
        """Return the id of the project that the login is for; raises as `call` does."""
        session = await self._connected("project")
        return await self._request("project", session.project_id, partial(classify_error, reads=True))

    async def pages(self, call: ApiCall, field: str) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield the pages of a listing as their links say, one call for each; raises as `call` does."""
        while True:
            answer = await self.call(call)
            yield records_in(call, answer, field)
            if (marker := _next_marker(answer.body, field)) is None:
                return
            call = replace(call, params={**call.params, "marker": marker})

    def _connect(self) -> sdk.CloudSession:
        self._credential = login = read_login(self._region.credential)
        return sdk.open_session(self._region, login, THREADS)

    def _close(self, session: sdk.CloudSession) -> None:
        session.close()


def records_in(call: ApiCall, answer: sdk.HttpAnswer, field: str) -> list[dict[str, Any]]:
    """Return the records of a page; raises `CloudCallFailed` for an answer without any, such as a proxy's page."""
    records = answer.body.get(field) if isinstance(answer.body, dict) else None
    if not isinstance(records, list):
        raise CloudCallFailed(call.name, "NoListing", TransientFailure("", f"the answer has no {field}"))
    return records


def has_next_page(answer: sdk.HttpAnswer, field: str) -> bool:
    """Tell whether a page has a link to the next one."""
    return _next_marker(answer.body, field) is not None


def _next_marker(body: Mapping[str, Any], field: str) -> str | None:
    """Return where the next page begins, if there is one: as Nova and Neutron link it, and as Glance does."""
    links = [str(link.get("href", "")) for link in body.get(f"{field}_links", ()) if link.get("rel") == "next"]
    urls = links or [str(body["next"])] if links or body.get("next") else []
    return next((value for link in urls for name, value in parse_qsl(urlsplit(link).query) if name == "marker"), None)
