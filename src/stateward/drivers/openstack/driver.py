"""The driver for OpenStack: one region and project, through openstacksdk.

A machine is a server of Nova. The option `suspend` says how it is suspended: `suspend` (its memory is written to disk),
`pause` (it stays in memory) or `stop`, because not every hypervisor can do all three. Nova has no client tokens: a key
is looked for before each create (`machines.py`). It has no tokens for reboots either: if the answer to a reboot is
lost, a retry reboots again.
"""

from collections.abc import Collection

from stateward.drivers import port
from stateward.drivers.cloud.driver import CloudDriver
from stateward.drivers.openstack.client import OpenStackClient
from stateward.drivers.openstack.images import OpenStackImages
from stateward.drivers.openstack.listing import PAGE_SIZE, ServerLister
from stateward.drivers.openstack.machines import OpenStackMachines
from stateward.drivers.openstack.networks import OpenStackResources
from stateward.drivers.openstack.settings import read_settings

MAX_BULK = 20
"""How many servers share one search for their keys; each is created by a call of its own."""

LISTING_LAG_S = 1.0
"""Nova lists what it has accepted; replicas of its databases may be a moment behind."""


class OpenStackDriver(CloudDriver):
    """Nova, Neutron and Glance in one region.

    Options of the region: `suspend` (`suspend`, `pause` or `stop`), `config_drive` (true or false), `connect_timeout`,
    `read_timeout`, and `settle_time`, the time after which a create without an answer may be repeated (all in seconds).
    """

    def __init__(self, provider_region: port.ProviderRegion, meter: port.Meter = lambda _: None) -> None:
        settings = read_settings(provider_region)
        self.caps = port.Capabilities(
            settings.suspend.suspension,
            port.Idempotency.TAG,
            max_bulk=MAX_BULK,
            page_size=PAGE_SIZE,
            listing_lag_s=LISTING_LAG_S,
        )
        self._calls = OpenStackClient(provider_region, meter)
        resources = OpenStackResources(self._calls)
        images = OpenStackImages(self._calls)
        self._lister = ServerLister(self._calls)
        machines = OpenStackMachines(self._calls, self._lister, images, resources, settings)
        super().__init__(provider_region, self._calls, machines, resources, images)

    async def observe(self, keys: Collection[str] | None = None) -> port.MachineListing:
        """List all our machines here, or those with these keys."""
        return (await self._lister.list_servers(keys)).listing()
