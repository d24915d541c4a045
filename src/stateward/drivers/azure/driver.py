"""The driver for Azure: one location of a subscription, through Azure's own libraries.

Everything is in one resource group, which must exist: the option `resource_group` names it. A machine is suspended by
deallocating it. A key gives its resource the name, and is a tag on it. Azure has no tokens for restarts: if the answer
to one is lost, a retry restarts again. The driver has been run against our simulator only, never against Azure itself.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from stateward.drivers import port
from stateward.drivers.azure.client import ArmClient
from stateward.drivers.azure.images import AzureImages
from stateward.drivers.azure.machines import AzureMachines
from stateward.drivers.azure.names import VIRTUAL_MACHINE, ArmScope, properties_of
from stateward.drivers.azure.networks import AzureResources
from stateward.drivers.azure.states import MachineRecords, observation, records_by_key
from stateward.drivers.cloud.driver import CloudDriver
from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.port import MachineListing

LISTING_LAG_S = 5.0
"""Azure guarantees no limit; the driver assumes this one."""


class AzureDriver(CloudDriver):
    """Azure in one location.

    Options of the region: `resource_group` (required), `subnet` (the id of the subnet of machines that name none),
    `public_address` (true or false), `endpoint_url`, `connect_timeout`, `read_timeout`, `poll_interval` (seconds).
    """

    _machines: AzureMachines
    caps = port.Capabilities(
        port.Suspension.BY_STOPPING, port.Idempotency.NAME, max_bulk=20, page_size=1000, listing_lag_s=LISTING_LAG_S
    )

    def __init__(self, provider_region: port.ProviderRegion, meter: port.Meter = lambda _: None) -> None:
        self._calls = ArmClient(provider_region, meter)
        machines, resources = AzureMachines(self._calls), AzureResources(self._calls)
        super().__init__(provider_region, self._calls, machines, resources, AzureImages(self._calls))

    async def observe(self, keys: Collection[str] | None = None) -> port.MachineListing:
        """List all our machines here, or those with these keys."""
        wanted = None if keys is None else set(keys)
        if wanted is not None and not wanted:
            return MachineListing((), complete=True)
        try:
            scope = await self._calls.scope()
            results = await asyncio.gather(
                _by_name(self._calls, scope, "compute.virtual_machines.list"),
                _statuses(self._calls, scope),
                _by_name(self._calls, scope, "network.network_interfaces.list"),
                _by_name(self._calls, scope, "network.public_ip_addresses.list"),
                return_exceptions=True,  # a call that goes on alone would not be noticed
            )
            for result in results:
                if isinstance(result, BaseException):
                    raise result
            listings = VmListings(*results)
        except CloudCallFailed as failed:
            return failed.listing()
        by_key = sorted(records_by_key(listings.records()).items())
        machines = [observation(key, records, scope) for key, records in by_key if wanted is None or key in wanted]
        return MachineListing(machines, complete=True)


# --- listing ---------------------------------------------------------------------------------------------------------

# Four listings of Azure, joined by name. That of virtual machines has their tags and provisioning states, but no power
# states; those are in a second listing (`statusOnly`), of the whole subscription. The other two show the network
# interfaces and public addresses: they have the addresses, and they show the parts of a machine whose create or
# terminate is not finished. Without one of its pages the whole listing is incomplete, and shows nothing.


class VmListings(Struct, frozen=True):
    """The four listings, by name."""

    machines: Mapping[str, Mapping[str, Any]]
    statuses: Mapping[str, tuple[Mapping[str, Any], ...]]
    interfaces: Mapping[str, Mapping[str, Any]]
    addresses: Mapping[str, Mapping[str, Any]]

    def records(self) -> dict[str, MachineRecords]:
        """Return the records of each machine, by name."""
        names = {*self.machines, *self.interfaces, *self.addresses}
        return {
            name: MachineRecords(
                self.machines.get(name),
                self.statuses.get(name, ()),
                self.interfaces.get(name),
                self.addresses.get(name),
            )
            for name in names
        }


async def _by_name(calls: ArmClient, scope: ArmScope, listing: str) -> dict[str, Mapping[str, Any]]:
    pages = calls.pages(listing, scope.group)
    return {str(resource["name"]).lower(): resource async for resource in pages if scope.is_here(resource)}


async def _statuses(calls: ArmClient, scope: ArmScope) -> dict[str, tuple[Mapping[str, Any], ...]]:
    statuses: dict[str, tuple[Mapping[str, Any], ...]] = {}
    async for machine in calls.pages("compute.virtual_machines.list_all", status_only="true"):
        names = scope.child_names(str(machine.get("id", "")), VIRTUAL_MACHINE)
        if names is not None and len(names) == 1:
            view = properties_of(machine).get("instanceView") or {}
            statuses[names[0].lower()] = tuple(view.get("statuses") or ())
    return statuses
