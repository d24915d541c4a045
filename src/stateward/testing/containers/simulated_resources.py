"""The images, networks and volumes of the simulated engine."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import TypeVar

from stateward.containers.container_records import (
    KEY_LABEL,
    ContainerImage,
    ContainerNetwork,
    ContainerNetworkSpec,
    ContainerVolume,
    ContainerVolumeSpec,
    PullProgress,
    RegistryLogin,
)
from stateward.containers.engine_requests import has_labels, pull_reference
from stateward.containers.errors import EngineRefusal, EngineRefused
from stateward.testing.containers.simulated_container import SimulatedContainer, new_id
from stateward.testing.containers.simulated_faults import SimulatedFaults


class SimulatedResources:
    """The part of the simulated engine that is not about containers."""

    def __init__(self, images: Sequence[str], faults: SimulatedFaults, registry: Mapping[str, int]) -> None:
        self.faults = faults
        self._registry = registry  # reference -> bytes of its layer, for pulls
        self._images = {name: _image(name) for name in map(full_name, images)}
        self._containers: dict[str, SimulatedContainer] = {}  # by id
        self._networks: dict[str, ContainerNetwork] = {}
        self._volumes: dict[str, ContainerVolume] = {}

    # --- images ------------------------------------------------------------------------------------------------------

    async def inspect_image(self, image: str) -> ContainerImage:
        """Return an image by its name or id."""
        await self.faults.pass_call("inspect image")
        known = self._find_image(image)
        if known is None:
            raise EngineRefused(EngineRefusal.IMAGE_MISSING, f"inspect image {image}", f"no such image: {image}")
        return known

    def _find_image(self, image: str) -> ContainerImage | None:
        named = self._images.get(full_name(image))
        return named or next((known for known in self._images.values() if known.id == image), None)

    async def pull_image(
        self,
        image: str,
        login: RegistryLogin | None = None,  # noqa: ARG002 - the port's
    ) -> AsyncGenerator[PullProgress]:
        """Pull an image from the simulated registry, and yield the progress."""
        await self.faults.pass_call("pull")
        reference, _ = pull_reference(image)
        call = f"pull {reference}"
        yield PullProgress(f"Pulling {reference}")
        if reference not in self._registry:
            raise EngineRefused(EngineRefusal.IMAGE_MISSING, call, "manifest unknown")
        self.faults.check_disk(call)
        size = self._registry[reference]
        yield PullProgress("Downloading", "layer", size, size)
        self._images[reference] = _image(reference)

    async def load_images(self, archive: bytes | AsyncIterator[bytes]) -> None:  # noqa: ARG002 - the port's
        """Refuse: what an archive holds is not simulated."""
        raise EngineRefused(EngineRefusal.INVALID, "load images", "the simulated engine has no images to load")

    # --- networks and volumes ----------------------------------------------------------------------------------------

    async def create_network(self, spec: ContainerNetworkSpec) -> str:
        """Create a network, or find it again; returns its id."""
        async with self.faults.answering("create network"):
            network = self._networks.get(spec.name)
            if network is None:
                labels = {**spec.labels, KEY_LABEL: spec.key}
                network = ContainerNetwork(new_id(), spec.name, labels)
                self._networks[spec.name] = network
            return _same_key(network, spec.key, f"create network {spec.name}").id

    async def list_networks(self, labels: Sequence[str] = ()) -> Sequence[ContainerNetwork]:
        """List networks."""
        await self.faults.pass_call("list networks")
        return [network for network in self._networks.values() if has_labels(network.labels, labels)]

    async def remove_network(self, network: str) -> bool:
        """Remove a network that no container uses."""
        async with self.faults.answering("remove network"):
            known = next(
                (candidate for candidate in self._networks.values() if network in (candidate.id, candidate.name)), None
            )
            if known is None:
                return False
            if any(container.spec.network == known.name for container in self._containers.values()):
                raise EngineRefused(EngineRefusal.IN_USE, f"remove network {network}", "it has containers")
            del self._networks[known.name]
            return True

    async def create_volume(self, spec: ContainerVolumeSpec) -> str:
        """Create a volume, or find it again; returns its name."""
        async with self.faults.answering("create volume"):
            self.faults.check_disk(f"create volume {spec.name}")
            made = ContainerVolume(spec.name, {**spec.labels, KEY_LABEL: spec.key})
            volume = self._volumes.setdefault(spec.name, made)
            return _same_key(volume, spec.key, f"create volume {spec.name}").name

    async def list_volumes(self, labels: Sequence[str] = ()) -> Sequence[ContainerVolume]:
        """List volumes."""
        await self.faults.pass_call("list volumes")
        return [volume for volume in self._volumes.values() if has_labels(volume.labels, labels)]

    async def remove_volume(self, volume: str) -> bool:
        """Remove a volume that no container uses."""
        async with self.faults.answering("remove volume"):
            if any(volume in container.volumes for container in self._containers.values()):
                raise EngineRefused(EngineRefusal.IN_USE, f"remove volume {volume}", "a container uses it")
            return self._volumes.pop(volume, None) is not None


_Labelled = TypeVar("_Labelled", ContainerNetwork, ContainerVolume)


def _same_key(resource: _Labelled, key: str, call: str) -> _Labelled:
    if resource.labels.get(KEY_LABEL) != key:
        raise EngineRefused(EngineRefusal.NAME_TAKEN, call, f"there is another {resource.name!r}")
    return resource


def full_name(image: str) -> str:
    """Return an image's name with its tag."""
    return pull_reference(image)[0]


def _image(name: str) -> ContainerImage:
    return ContainerImage(f"sha256:{new_id()}", (name,))
