"""The driver for Google Compute Engine: one zone of a region in one project, through google-cloud-compute.

A machine is suspended natively, with its memory. A key gives the instance's name, its request id and its label; the
token of an action is its request id. Compute Engine shows a machine as RUNNING while it is reset, and a stopped one as
TERMINATED: it is at rest, and `resume` starts it.
"""

from collections.abc import Collection

from msgspec.structs import replace

from stateward.drivers.cloud.driver import CloudDriver
from stateward.drivers.gcp.client import GceClient
from stateward.drivers.gcp.images import GceImages
from stateward.drivers.gcp.keys import ProjectKeys
from stateward.drivers.gcp.listing import PAGE_SIZE, list_instances
from stateward.drivers.gcp.machines import GceMachines
from stateward.drivers.gcp.networks import GceResources
from stateward.drivers.port import (
    Capabilities,
    Idempotency,
    MachineListing,
    Meter,
    ProviderRegion,
    Suspension,
)

MAX_BULK = 100
"""Machines per call of the driver; each is one call to Compute Engine, and the thread pool limits those at once."""

LISTING_LAG_S = 3.0
"""Google guarantees no limit for listings."""


class GcpDriver(CloudDriver):
    """Compute Engine in one zone; `settings.py` has the options of the region."""

    _machines: GceMachines
    caps = Capabilities(
        Suspension.NATIVE, Idempotency.TOKEN, max_bulk=MAX_BULK, page_size=PAGE_SIZE, listing_lag_s=LISTING_LAG_S
    )

    def __init__(self, provider_region: ProviderRegion, meter: Meter = lambda _: None) -> None:
        self._calls = GceClient(provider_region, meter)
        keys = ProjectKeys(self._calls)
        images = GceImages(self._calls)
        machines, resources = GceMachines(self._calls, images, keys), GceResources(self._calls, keys)
        super().__init__(provider_region, self._calls, machines, resources, images)

    async def observe(self, keys: Collection[str] | None = None) -> MachineListing:
        """List all our machines here, or those with these keys; also those that could not be created."""
        listing = (await list_instances(self._calls, keys, self._machines.deleting)).listing()
        if not listing.complete:
            return listing
        failed = await self._machines.failed_machines(listing.machines, keys)
        return replace(listing, machines=[*listing.machines, *failed])
