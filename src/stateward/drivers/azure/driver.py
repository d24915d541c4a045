"""The driver for Azure: one location of a subscription, through Azure's own libraries.

Everything is in one resource group, which must exist: the option `resource_group` names it. A machine is suspended by
deallocating it. A key gives its resource the name, and is a tag on it. Azure has no tokens for restarts: if the answer
to one is lost, a retry restarts again. The driver has been run against our simulator only, never against Azure itself.
"""

from collections.abc import Collection

from stateward.drivers.azure.client import ArmClient
from stateward.drivers.azure.images import AzureImages
from stateward.drivers.azure.listing import list_machines
from stateward.drivers.azure.machines import AzureMachines
from stateward.drivers.azure.networks import AzureResources
from stateward.drivers.cloud.driver import CloudDriver
from stateward.drivers.port import (
    Capabilities,
    Idempotency,
    MachineListing,
    Meter,
    ProviderRegion,
    Suspension,
)

LISTING_LAG_S = 5.0
"""Azure guarantees no limit; the driver assumes this one."""


class AzureDriver(CloudDriver):
    """Azure in one location.

    Options of the region: `resource_group` (required), `subnet` (the id of the subnet of machines that name none),
    `public_address` (true or false), `endpoint_url`, `connect_timeout`, `read_timeout`, `poll_interval` (seconds).
    """

    _machines: AzureMachines
    caps = Capabilities(
        Suspension.BY_STOPPING, Idempotency.NAME, max_bulk=20, page_size=1000, listing_lag_s=LISTING_LAG_S
    )

    def __init__(self, provider_region: ProviderRegion, meter: Meter = lambda _: None) -> None:
        self._calls = ArmClient(provider_region, meter)
        machines, resources = AzureMachines(self._calls), AzureResources(self._calls)
        super().__init__(provider_region, self._calls, machines, resources, AzureImages(self._calls))

    async def observe(self, keys: Collection[str] | None = None) -> MachineListing:
        """List all our machines here, or those with these keys."""
        return await list_machines(self._calls, keys)
