"""Listings of instances, page by page; without one of its pages a listing is incomplete."""

from collections.abc import Collection, Sequence

from msgspec import Struct

from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.gcp.gce_client import GceClient
from stateward.drivers.gcp.gce_machines import key_filter, key_of, observation, own_filter
from stateward.drivers.port import MachineListing, Observation

PAGE_SIZE = 500
"""Compute Engine's maximum."""

MAX_FILTER_KEYS = 20
"""A filter with more keys would be too long for an address; then everything of ours is listed."""

HARMLESS_WARNINGS = ("", "NO_RESULTS_ON_PAGE")


class InstanceList(Struct, frozen=True):
    """The machines that were listed, and the failure or warning that makes the listing incomplete, if any."""

    machines: Sequence[Observation]
    failed: CloudCallFailed | None = None
    warning: str = ""

    def listing(self) -> MachineListing:
        """Return the result as the listing of the port."""
        if self.failed is None:
            return MachineListing(self.machines, complete=not self.warning, problem=self.warning)
        return self.failed.listing(self.machines)


async def list_instances(
    calls: GceClient, keys: Collection[str] | None = None, deleting: Collection[str] = ()
) -> InstanceList:
    """List all our machines, or those with some keys."""
    if keys is None:
        return await _pages(calls, own_filter(), None, deleting)
    wanted = set(keys)
    if not wanted:
        return InstanceList([])
    chosen = own_filter() if len(wanted) > MAX_FILTER_KEYS else key_filter(sorted(wanted))
    return await _pages(calls, chosen, wanted, deleting)


async def _pages(
    calls: GceClient, chosen: str, wanted: Collection[str] | None, deleting: Collection[str]
) -> InstanceList:
    seen: dict[str, Observation] = {}  # a machine is on two pages if another was created meanwhile
    warning = ""
    try:
        async for page in calls.pages("instances.list", filter=chosen, max_results=PAGE_SIZE):
            warning = warning or _warning(str(page.warning.code), str(page.warning.message))
            ours = [one for one in page.items if key_of(one)]
            seen |= {one.name: observation(one, deleting) for one in ours if wanted is None or key_of(one) in wanted}
    except CloudCallFailed as failed:
        return InstanceList(list(seen.values()), failed)
    return InstanceList(list(seen.values()), warning=warning)


def _warning(code: str, message: str) -> str:
    return "" if code in HARMLESS_WARNINGS else f"{code}: {message}"
