"""Listings of instances, page by page; without one of its pages a listing is incomplete."""

from collections.abc import Collection

from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.cloud.machines import FoundMachines
from stateward.drivers.gcp.client import GceClient
from stateward.drivers.gcp.names import key_filter, own_filter
from stateward.drivers.gcp.states import key_of, observation
from stateward.drivers.port import Observation, TransientFailure

PAGE_SIZE = 500
"""Compute Engine's maximum."""

MAX_FILTER_KEYS = 20
"""A filter with more keys would be too long for an address; then everything of ours is listed."""

HARMLESS_WARNINGS = ("", "NO_RESULTS_ON_PAGE")


async def list_instances(
    calls: GceClient, keys: Collection[str] | None = None, deleting: Collection[str] = ()
) -> FoundMachines:
    """List all our machines, or those with some keys."""
    if keys is None:
        return await _pages(calls, own_filter(), None, deleting)
    wanted = set(keys)
    if not wanted:
        return FoundMachines([])
    chosen = own_filter() if len(wanted) > MAX_FILTER_KEYS else key_filter(sorted(wanted))
    return await _pages(calls, chosen, wanted, deleting)


async def _pages(
    calls: GceClient, chosen: str, wanted: Collection[str] | None, deleting: Collection[str]
) -> FoundMachines:
    seen: dict[str, Observation] = {}  # a machine is on two pages if another was created meanwhile
    warning: CloudCallFailed | None = None
    try:
        async for page in calls.pages("instances.list", filter=chosen, max_results=PAGE_SIZE):
            warning = warning or _incomplete(str(page.warning.code), str(page.warning.message))
            ours = [instance for instance in page.items if key_of(instance)]
            seen |= {
                instance.name: observation(instance, deleting)
                for instance in ours
                if wanted is None or key_of(instance) in wanted
            }
    except CloudCallFailed as failed:
        return FoundMachines(list(seen.values()), failed)
    return FoundMachines(list(seen.values()), warning)


def _incomplete(code: str, message: str) -> CloudCallFailed | None:
    """Return the failure that a warning of a page means: something is missing from it."""
    if code in HARMLESS_WARNINGS:
        return None
    return CloudCallFailed("instances.list", code, TransientFailure("", f"{code}: {message}"))
