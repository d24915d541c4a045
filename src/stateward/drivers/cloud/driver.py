"""The part of a driver that is the same at every cloud.

A cloud has no events and runs no commands. A call that fails, and input that cannot be used, are outcomes. A key that
is given twice is dealt with once.
"""

from collections.abc import AsyncIterator, Sequence
from errno import ENOTSUP
from typing import Any, Protocol

from stateward.drivers import port
from stateward.drivers.cloud.images import CloudImages
from stateward.drivers.cloud.machines import CloudMachines, outcomes_in_order
from stateward.drivers.cloud.networks import CloudResources

NO_EVENTS: tuple[str, ...] = ()


class Closable(Protocol):
    """A client with connections."""

    async def close(self) -> None:
        """Close the connections."""


class CloudDriver:
    """What the drivers of clouds inherit: most calls are those of the machines, the resources and the images."""

    def __init__(
        self,
        provider_region: port.ProviderRegion,
        connections: Closable,
        machines: CloudMachines,
        resources: CloudResources,
        images: CloudImages[Any, Any],
    ) -> None:
        self._region, self._machines = provider_region, machines
        self.check, self.act, self.close = images.check, machines.act, connections.close
        self.ensure, self.remove, self.list_resources = resources.ensure, resources.remove, resources.listing

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._region.zone or self._region.region})"

    async def create(self, machine_specs: Sequence[port.MachineSpec]) -> Sequence[port.Outcome]:
        """Create machines; one outcome for each, in order. A known key creates nothing new."""
        return await outcomes_in_order(machine_specs, self._machines.create)

    async def run(self, handle: port.MachineHandle, command: str, user: str, seconds: float) -> str:  # noqa: ARG002
        """Refuse: commands run over a machine's SSH, not through its cloud."""
        raise OSError(ENOTSUP, "the driver runs no commands", handle.key)

    async def watch(self) -> AsyncIterator[str]:
        """Yield nothing: there are no events."""
        for key in NO_EVENTS:
            yield key
