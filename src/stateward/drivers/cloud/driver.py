"""The part of a driver that is the same at every cloud.

A cloud has no events and runs no commands. A call that fails, and input that cannot be used, are outcomes. A key that
is given twice is dealt with once.
"""

from collections.abc import AsyncIterator, Sequence
from errno import ENOTSUP
from typing import Any, Protocol

from stateward.drivers.cloud.images import CloudImages
from stateward.drivers.cloud.machines import CloudMachines, outcomes_in_order
from stateward.drivers.cloud.networks import CloudResources
from stateward.drivers.port import (
    CallRefused,
    CloudResource,
    Inconclusive,
    MachineAction,
    MachineHandle,
    MachineSpec,
    Outcome,
    ProviderRegion,
    ResourceListing,
)

NO_EVENTS: tuple[str, ...] = ()


class Closable(Protocol):
    """A client with connections."""

    async def close(self) -> None:
        """Close the connections."""


class CloudDriver:
    """What the drivers of clouds inherit."""

    def __init__(
        self,
        provider_region: ProviderRegion,
        connections: Closable,
        machines: CloudMachines,
        resources: CloudResources,
        images: CloudImages[Any, Any],
    ) -> None:
        self._region, self._connections = provider_region, connections
        self._machines, self._resources, self._images = machines, resources, images

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._region.zone or self._region.region})"

    async def check(self, spec: str, image: str) -> CallRefused | Inconclusive | None:
        """Return why a machine of this size and image cannot be created, or that nobody answered; else None."""
        return await self._images.check(spec, image)

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
        """Create machines; one outcome for each, in order. A known key creates nothing new."""
        return await outcomes_in_order(machine_specs, self._machines.create)

    async def act(self, action: MachineAction, handles: Sequence[MachineHandle]) -> Sequence[Outcome]:
        """Carry out an action on machines; one outcome for each, in order."""
        return await self._machines.act(action, handles)

    async def run(self, handle: MachineHandle, command: str, user: str, seconds: float) -> str:  # noqa: ARG002
        """Refuse: commands run over a machine's SSH, not through its cloud."""
        raise OSError(ENOTSUP, "the driver runs no commands", handle.key)

    async def watch(self) -> AsyncIterator[str]:
        """Yield nothing: there are no events."""
        for key in NO_EVENTS:
            yield key

    async def close(self) -> None:
        """Close the connections; the machines stay as they are."""
        await self._connections.close()
