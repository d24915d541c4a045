"""The driver for Azure: one location of a subscription, through Azure's own libraries.

Everything is in one resource group, which must exist: the option `resource_group` names it. A machine is suspended by
deallocating it. A key gives its resource the name, and is a tag on it. Azure has no tokens for restarts: if the answer
to one is lost, a retry restarts again. The driver has been run against our simulator only, never against Azure itself.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from errno import ENOTSUP

from stateward.drivers.azure.arm_client import ArmClient
from stateward.drivers.azure.network_resources import NetworkResources
from stateward.drivers.azure.vm_actions import VmActions
from stateward.drivers.azure.vm_creation import VmCreation
from stateward.drivers.azure.vm_images import SizeLookup, check_spec
from stateward.drivers.azure.vm_listing import list_machines
from stateward.drivers.port import (
    CallRefused,
    Capabilities,
    CloudResource,
    Idempotency,
    Inconclusive,
    MachineAction,
    MachineHandle,
    MachineListing,
    MachineSpec,
    Meter,
    Outcome,
    ProviderRegion,
    ResourceListing,
    Suspension,
)

LISTING_LAG_S = 5.0
"""Azure guarantees no limit; the driver assumes this one."""

CAPABILITIES = Capabilities(
    Suspension.BY_STOPPING, Idempotency.NAME, max_bulk=20, page_size=1000, listing_lag_s=LISTING_LAG_S
)


class AzureDriver:
    """Azure in one location.

    Options of the region: `resource_group` (required), `subnet` (the id of the subnet of machines that name none),
    `public_address` (true or false), `endpoint_url`, `connect_timeout`, `read_timeout`, `poll_interval` (seconds).
    """

    def __init__(self, provider_region: ProviderRegion, meter: Meter = lambda _: None) -> None:
        self._provider_region = provider_region
        self._arm = ArmClient(provider_region, meter)
        self._sizes = SizeLookup(self._arm)
        self._machines = VmCreation(self._arm)
        self._actions = VmActions(self._arm, self._machines)
        self._resources = NetworkResources(self._arm)

    def __repr__(self) -> str:
        return f"AzureDriver({self._provider_region.region})"

    @property
    def caps(self) -> Capabilities:
        """The capabilities of Azure."""
        return CAPABILITIES

    async def check(self, spec: str, image: str) -> CallRefused | Inconclusive | None:
        """Return why a machine of this size and image cannot be created, or that Azure did not answer; else None."""
        return await check_spec(self._arm, self._sizes, spec, image)

    async def ensure(self, resource: CloudResource) -> Outcome:
        """Find a resource by its key, or create it."""
        return await self._resources.ensure(resource)

    async def remove(self, resource: CloudResource) -> Outcome:
        """Remove what carries a resource's key."""
        return await self._resources.remove(resource)

    async def list_resources(self) -> ResourceListing:
        """List all our resources here."""
        return await self._resources.listing()

    async def create(self, machine_specs: Sequence[MachineSpec]) -> Sequence[Outcome]:
        """Create machines; a create that was interrupted is continued."""
        different = {machine_spec.key: machine_spec for machine_spec in reversed(machine_specs)}
        made = await asyncio.gather(*(self._machines.create(machine_spec) for machine_spec in different.values()))
        outcomes = {outcome.key: outcome for outcome in made}
        return [outcomes[machine_spec.key] for machine_spec in machine_specs]

    async def act(self, action: MachineAction, handles: Sequence[MachineHandle]) -> Sequence[Outcome]:
        """Carry out an action on machines; one outcome for each, in order."""
        different = {handle.key: handle for handle in reversed(handles)}
        done = await asyncio.gather(*(self._actions.act(action, handle) for handle in different.values()))
        outcomes = {outcome.key: outcome for outcome in done}
        return [outcomes[handle.key] for handle in handles]

    async def observe(self, keys: Collection[str] | None = None) -> MachineListing:
        """List all our machines here, or those with these keys."""
        return await list_machines(self._arm, keys)

    async def run(self, handle: MachineHandle, command: str, user: str, seconds: float) -> str:  # noqa: ARG002
        """Refuse: commands run over a machine's SSH, not through Azure."""
        raise OSError(ENOTSUP, "the driver runs no commands through Azure", handle.key)

    async def watch(self) -> AsyncIterator[str]:
        """Yield nothing: there are no events."""
        nothing: tuple[str, ...] = ()
        for key in nothing:
            yield key

    async def close(self) -> None:
        """Close the connections; the machines stay as they are."""
        await self._arm.close()
