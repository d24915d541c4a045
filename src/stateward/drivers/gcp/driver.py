"""The driver for Google Compute Engine: one zone of a region in one project, through google-cloud-compute.

A machine is suspended natively, with its memory. A key gives the instance's name, its request id and its label; the
token of an action is its request id. Compute Engine shows a machine as RUNNING while it is reset, and a stopped one as
TERMINATED: it is at rest, and `resume` starts it.
"""

from collections.abc import Collection

from msgspec.structs import replace

from stateward.drivers import port
from stateward.drivers.cloud.driver import CloudDriver
from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.cloud.machines import FoundMachines
from stateward.drivers.gcp.client import GceClient
from stateward.drivers.gcp.images import GceImages
from stateward.drivers.gcp.keys import ProjectKeys
from stateward.drivers.gcp.machines import GceMachines
from stateward.drivers.gcp.names import key_filter, own_filter
from stateward.drivers.gcp.networks import GceResources
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


MAX_BULK = 100
"""Machines per call of the driver; each is one call to Compute Engine, and the thread pool limits those at once."""

LISTING_LAG_S = 3.0
"""Google guarantees no limit for listings."""


class GcpDriver(CloudDriver):
    """Compute Engine in one zone; `settings.py` has the options of the region."""

    _machines: GceMachines
    caps = port.Capabilities(
        port.Suspension.NATIVE,
        port.Idempotency.TOKEN,
        max_bulk=MAX_BULK,
        page_size=PAGE_SIZE,
        listing_lag_s=LISTING_LAG_S,
    )

    def __init__(self, provider_region: port.ProviderRegion, meter: port.Meter = lambda _: None) -> None:
        self._calls = GceClient(provider_region, meter)
        keys = ProjectKeys(self._calls)
        images = GceImages(self._calls)
        machines, resources = GceMachines(self._calls, images, keys), GceResources(self._calls, keys)
        super().__init__(provider_region, self._calls, machines, resources, images)

    async def observe(self, keys: Collection[str] | None = None) -> port.MachineListing:
        """List all our machines here, or those with these keys; also those that could not be created."""
        listing = (await list_instances(self._calls, keys, self._machines.deleting)).listing()
        if not listing.complete:
            return listing
        failed = await self._machines.failed_machines(listing.machines, keys)
        return replace(listing, machines=[*listing.machines, *failed])
