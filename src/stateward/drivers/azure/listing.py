"""The listing of machines: four listings of Azure, joined by name.

The listing of virtual machines has their tags and provisioning states, but no power states; those are in a second
listing (`statusOnly`), of the whole subscription. The other two show the network interfaces and public addresses: they
have the addresses, and they show the parts of a machine whose create or terminate is not finished. Without one of its
pages the whole listing is incomplete, and shows nothing.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from stateward.drivers.azure.client import ArmClient
from stateward.drivers.azure.names import VIRTUAL_MACHINE, ArmScope, properties_of
from stateward.drivers.azure.states import MachineRecords, observation, records_by_key
from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.port import MachineListing


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


async def list_machines(calls: ArmClient, keys: Collection[str] | None = None) -> MachineListing:
    """List all our machines, or those with some keys."""
    wanted = None if keys is None else set(keys)
    if wanted is not None and not wanted:
        return MachineListing((), complete=True)
    try:
        scope = await calls.scope()
        listings = await _list_all(calls, scope)
    except CloudCallFailed as failed:
        return failed.listing()
    by_key = sorted(records_by_key(listings.records()).items())
    machines = [observation(key, records, scope) for key, records in by_key if wanted is None or key in wanted]
    return MachineListing(machines, complete=True)


async def _list_all(calls: ArmClient, scope: ArmScope) -> VmListings:
    results = await asyncio.gather(
        _by_name(calls, scope, "compute.virtual_machines.list"),
        _statuses(calls, scope),
        _by_name(calls, scope, "network.network_interfaces.list"),
        _by_name(calls, scope, "network.public_ip_addresses.list"),
        return_exceptions=True,  # a call that goes on alone would not be noticed
    )
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return VmListings(*results)


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
