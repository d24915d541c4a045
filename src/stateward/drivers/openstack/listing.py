"""Listings of servers, in pages.

Nova cannot filter by metadata, so one listing of the project serves all keys. A full listing is the only one from which
absence follows. A listing of changes (`changes-since`) is used for what it alone shows: servers that were deleted not
long ago. It proves no absence, because it hides the servers of a cell that is down, those that were deleted before they
had reached a cell, and those that have reached one and have not been changed there yet.

The pages of a full listing prove absence only with care:

- Nova puts the servers that are in no cell yet before all others, counts them against the limit of the page, and then
  drops those that have reached a cell meanwhile. So a page may be short, without a link to the next one, and not the
  last. A listing goes on until a page is empty, or so short that it cannot have been full.
- A server that is in no cell yet has another place in the order when it has reached one. So the next page begins after
  a server that is in a cell; where a page has none, the listing is incomplete.
- Nova tells of a cell that is down only in a request without `limit` and `marker`, and only if the page is not full. So
  after a listing of several pages, the driver asks for each server that an earlier listing has shown and this one has
  not.
"""

import asyncio
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from msgspec import Struct
from msgspec.structs import replace

from stateward.drivers import port
from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.cloud.machines import FoundMachines
from stateward.drivers.openstack.client import ApiCall, OpenStackClient, has_next_page, records_in
from stateward.drivers.openstack.states import is_scheduling, is_unreadable, key_of, observation

PAGE_SIZE = 1000
"""The usual limit of a page; a cloud may have another one."""

LEAST_PAGE_SIZE = 100
"""No cloud is known whose pages have a lower limit. Of a page, Nova drops at most as many servers as it shows."""

CLOCK_MARGIN = timedelta(minutes=5)
"""How much the clocks of a cloud's hosts may differ."""


class ServerListing(FoundMachines, frozen=True):
    """The servers that were listed, and the cloud's time at the start of the listing."""

    time: datetime | None = None


class ServerPages(Struct):
    """What the pages of one listing have shown so far: our own servers by id."""

    # bounded by: one listing
    machines: dict[str, port.Observation] = {}  # a server is on two pages if another one was created meanwhile
    number: int = 0
    failed: CloudCallFailed | None = None
    time: datetime | None = None

    def of_keys(self, keys: Collection[str] | None) -> ServerListing:
        """Return the listing of some keys, or of all."""
        chosen = [machine for machine in self.machines.values() if keys is None or machine.key in keys]
        return ServerListing(chosen, self.failed, self.time)


class ServerLister:
    """Lists servers, and remembers which of ours there are."""

    def __init__(self, calls: OpenStackClient) -> None:
        self._calls = calls
        self._known: set[str] = set()

    async def list_servers(self, keys: Collection[str] | None = None) -> ServerListing:
        """List all our machines, or those with some keys."""
        if keys is not None and not keys:
            return ServerListing(())
        expected = frozenset(self._known)
        pages = await self._read_pages({})
        self._known |= pages.machines.keys()
        if pages.failed is None:
            pages.failed = await self._explain_missing(expected - pages.machines.keys(), pages.number)
        return pages.of_keys(keys)

    async def list_changes(self, since: datetime, keys: Collection[str]) -> ServerListing:
        """List the machines with some keys that were changed or deleted after a time of the cloud's clock."""
        moment = (since - CLOCK_MARGIN).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return (await self._read_pages({"changes-since": moment})).of_keys(keys)

    async def list_new(self, since: datetime, keys: Collection[str]) -> ServerListing:
        """List the machines with some keys that were created after a time of the cloud's clock.

        They are being built, and have not been changed; or they have, before the second listing begins.
        """
        building = (await self._read_pages({"status": "BUILD"})).of_keys(keys)
        changed = await self.list_changes(since, keys)
        latest = {machine.native_id: machine for machine in (*building.machines, *changed.machines)}
        return ServerListing(list(latest.values()), building.failed or changed.failed)

    async def _read_pages(self, params: Mapping[str, str]) -> ServerPages:
        """Read pages up to the last one, or up to a failure."""
        pages = ServerPages()
        call: ApiCall | None = ApiCall("ListServers", "compute", "GET", "/servers/detail", params=params)
        try:
            while call is not None:
                call = await self._read_page(call, pages)
        except CloudCallFailed as failed:
            pages.failed = failed
        return pages

    async def _read_page(self, call: ApiCall, pages: ServerPages) -> ApiCall | None:
        """Read one page, and return the call for the next one; None after the last."""
        answer = await self._calls.call(call)
        page = records_in(call, answer, "servers")
        pages.number += 1
        pages.time = pages.time or _time_of(answer.headers)
        pages.machines |= {str(server["id"]): observation(server) for server in page if key_of(server)}
        if hidden := sum(is_unreadable(server) for server in page):
            raise _incomplete("CellDown", f"{hidden} servers are in a cell that does not answer")
        if not page or (2 * len(page) < LEAST_PAGE_SIZE and not has_next_page(answer, "servers")):
            return None
        marker = next((str(server["id"]) for server in reversed(page) if not is_scheduling(server)), "")
        if marker in ("", call.params.get("marker")):
            raise _incomplete("Scheduling", "servers are being scheduled, and more servers may follow after them")
        return replace(call, params={**call.params, "marker": marker})

    async def _explain_missing(self, missing: Collection[str], number_of_pages: int) -> CloudCallFailed | None:
        """Return why a listing without some known servers is incomplete; None if they are gone."""
        if number_of_pages == 1:
            self._known.difference_update(missing)
            return None
        reasons = await asyncio.gather(*(self._missing_server(native) for native in sorted(missing)))
        return next((failed for failed in reasons if failed is not None), None)

    async def _missing_server(self, native: str) -> CloudCallFailed | None:
        try:
            server = await self._calls.record(ApiCall("GetServer", "compute", "GET", f"/servers/{native}"), "server")
        except CloudCallFailed as failed:
            if failed.why is not port.RefusalReason.NOT_FOUND:
                return failed
        else:
            if observation(server).state is not port.MachineState.TERMINATED:
                return _incomplete("ServerMissing", f"the server {native} exists, and the listing does not show it")
        self._known.discard(native)
        return None


def _incomplete(code: str, text: str) -> CloudCallFailed:
    return CloudCallFailed("ListServers", code, port.TransientFailure("", text))


def _time_of(headers: Mapping[str, str]) -> datetime:
    try:
        return parsedate_to_datetime(headers.get("date", "")).astimezone(UTC)
    except (TypeError, ValueError):
        return datetime.now(UTC)
