"""The driver for Google Compute Engine: one zone of a region in one project, through google-cloud-compute.

A machine is suspended natively, with its memory. A key gives the instance's name, its request id and its label; the
token of an action is its request id. Compute Engine shows a machine as RUNNING while it is reset, and a stopped one as
TERMINATED: it is at rest, and `resume` starts it.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from errno import ENOTSUP

from msgspec.structs import replace

from stateward.drivers.gcp.gce_client import GceClient
from stateward.drivers.gcp.gce_images import GceImages, check_machine
from stateward.drivers.gcp.gce_resources import GceResources
from stateward.drivers.gcp.instance_actions import GceActions
from stateward.drivers.gcp.instance_launch import InstanceLaunch
from stateward.drivers.gcp.instance_listing import PAGE_SIZE, list_instances
from stateward.drivers.gcp.project_keys import ProjectKeys
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

MAX_BULK = 100
"""Machines per call of the driver; each is one call to Compute Engine, and the thread pool limits those at once."""

LISTING_LAG_S = 3.0
"""Google guarantees no limit for listings."""

CAPABILITIES = Capabilities(
    Suspension.NATIVE, Idempotency.TOKEN, max_bulk=MAX_BULK, page_size=PAGE_SIZE, listing_lag_s=LISTING_LAG_S
)


class GcpDriver:
    """Compute Engine in one zone; `gce_settings.py` has the options of the region."""

    def __init__(self, provider_region: ProviderRegion, meter: Meter = lambda _: None) -> None:
        self._provider_region = provider_region
        self._calls = GceClient(provider_region, meter)
        self._images = GceImages(self._calls)
        keys = ProjectKeys(self._calls)
        self._resources = GceResources(self._calls, keys)
        self._launch = InstanceLaunch(self._calls, self._images, keys)
        self._actions = GceActions(self._calls, self._launch)

    def __repr__(self) -> str:
        return f"GcpDriver({self._provider_region.zone or self._provider_region.region})"

    @property
    def caps(self) -> Capabilities:
        """The capabilities of Compute Engine."""
        return CAPABILITIES

    async def check(self, spec: str, image: str) -> CallRefused | Inconclusive | None:
        """Return why a machine of this size and image cannot be created here, or that nobody answered; else None."""
        return await check_machine(self._calls, self._images, spec, image)

    async def ensure(self, resource: CloudResource) -> Outcome:
        """Find a resource by its key, or create it. A private key whose answer was lost cannot be fetched again."""
        return await self._resources.ensure(resource)

    async def remove(self, resource: CloudResource) -> Outcome:
        """Remove what carries a resource's key."""
        return await self._resources.remove(resource)

    async def list_resources(self) -> ResourceListing:
        """List all our resources here."""
        return await self._resources.listing()

    async def create(self, machine_specs: Sequence[MachineSpec]) -> Sequence[Outcome]:
        """Create machines; one outcome for each, in order."""
        return await self._launch.create(machine_specs)

    async def act(self, action: MachineAction, handles: Sequence[MachineHandle]) -> Sequence[Outcome]:
        """Carry out an action on machines; one outcome for each, in order."""
        return await self._actions.act(action, handles)

    async def observe(self, keys: Collection[str] | None = None) -> MachineListing:
        """List all our machines here, or those with these keys; also those that could not be created."""
        listing = (await list_instances(self._calls, keys, self._actions.deleting)).listing()
        if not listing.complete:
            return listing
        failed = await self._launch.failed_machines(listing.machines, keys)
        return replace(listing, machines=[*listing.machines, *failed])

    async def run(self, handle: MachineHandle, command: str, user: str, seconds: float) -> str:  # noqa: ARG002
        """Refuse: commands run over a machine's SSH, not through Compute Engine."""
        raise OSError(ENOTSUP, "Compute Engine itself runs no commands", handle.key)

    async def watch(self) -> AsyncIterator[str]:
        """Yield nothing: there are no events."""
        nothing: tuple[str, ...] = ()
        for key in nothing:
            yield key

    async def close(self) -> None:
        """Close the connections; the machines stay as they are."""
        await self._calls.close()
