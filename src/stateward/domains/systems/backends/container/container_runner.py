"""The creation of containers for instances, with the networks, volumes and images that they need."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from msgspec.structs import replace

from stateward.containers import ContainerEngine, ContainerSpec, EngineRefusal, EngineRefused
from stateward.domains.systems.backends.container.container_specs import ContainerNames, EngineReach, with_secrets
from stateward.domains.systems.backends.container.engine_listing import EngineListing
from stateward.domains.systems.backends.container.image_pins import ImagePins
from stateward.domains.systems.backends.local.instance_dir import InstanceOrder
from stateward.domains.systems.backends.local.launch import THIS_HOST, HostPlace
from stateward.domains.systems.backends.port import ReadSecrets, ReportText, ServiceRef, SystemRef

PARALLEL_STARTS = 8
"""How many containers are created and started at once: an engine does not get faster with more."""

MAX_ARCHIVE_BYTES = 1_000_000
"""How much of a container's output is kept when it is removed."""


class ContainerRunner:
    """Creates and starts the containers of one installation on one engine."""

    def __init__(
        self,
        engine: ContainerEngine,
        names: ContainerNames,
        reach: EngineReach,
        listing: EngineListing,
        read_secrets: ReadSecrets,
        notify: Callable[[], None],
        place: HostPlace = THIS_HOST,
    ) -> None:
        self._read_secrets, self.place = read_secrets, place
        self.engine, self.names, self.reach, self.listing, self.notify = engine, names, reach, listing, notify
        self.images = ImagePins(engine)
        self.starts = asyncio.Semaphore(PARALLEL_STARTS)
        self.removed_at = 0.0  # when the last instance was removed, by the monotonic clock
        self._networks: dict[SystemRef, asyncio.Task[str]] = {}

    async def create(self, ref: ServiceRef, order: InstanceOrder, boot: int, report: ReportText) -> str:
        """Create the container of a start of an instance, or find it again; returns its id."""
        wanted = {secret.secret for secret in order.service.secrets.values()}
        secrets = await self._read_secrets(ref.system.ns, wanted) if wanted else {}
        spec = with_secrets(self.names.container_spec(ref, order, boot, self.reach), order.service, secrets)
        await self._ensure_network(ref.system)
        for volume in self.names.volume_specs(ref.system, order.service):
            await self.engine.create_volume(volume)
        try:
            return await self._create(ref, spec)
        except EngineRefused as error:
            if error.reason is not EngineRefusal.IMAGE_MISSING:
                raise
        await self.images.pull_again(order.service, report)
        pinned = order.service.pinned  # another engine may have another id for the same digest
        return await self._create(ref, spec if pinned is None else replace(spec, image=pinned.digest))

    async def _create(self, ref: ServiceRef, spec: ContainerSpec) -> str:
        try:
            return await self.engine.create_container(spec)
        except EngineRefused as error:
            if error.reason is not EngineRefusal.NOT_FOUND:
                raise
        self._networks.pop(ref.system, None)  # somebody has removed the network
        await self._ensure_network(ref.system)
        return await self.engine.create_container(spec)

    async def _ensure_network(self, system_ref: SystemRef) -> None:
        """Create the network of a system once; concurrent starts share the call."""
        known = self._networks.get(system_ref)
        if known is None or (known.done() and (known.cancelled() or known.exception() is not None)):
            creation = self.engine.create_network(self.names.network_spec(system_ref))
            known = self._networks[system_ref] = asyncio.ensure_future(creation)
        await asyncio.shield(known)

    def forget_network(self, system_ref: SystemRef) -> None:
        """Create the network of a system again when it is needed next."""
        self._networks.pop(system_ref, None)

    async def close(self) -> None:
        """Cancel what is under way."""
        for task in self._networks.values():
            task.cancel()
        await asyncio.gather(*self._networks.values(), return_exceptions=True)
        await self.images.close()


async def read_output(engine: ContainerEngine, container: str, most: int) -> tuple[bytes, int]:
    """Return the end of a container's output, and how many bytes there are in all."""
    kept, total = bytearray(), 0
    async with aclosing(engine.read_logs(container)) as chunks:
        async for chunk in chunks:
            kept += chunk.data
            total += len(chunk.data)
            if len(kept) > 2 * most:
                del kept[:-most]
    return bytes(kept[-most:]), total
