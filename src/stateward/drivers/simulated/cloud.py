"""The simulated cloud of all providers: it outlives its drivers and, with a file, the server too.

Clock, sleep and randomness are injected, so that under virtual time one seed gives one run.
"""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from random import Random

from msgspec import msgpack

from stateward.drivers import port
from stateward.drivers.simulated.cloud_file import CloudFile, CloudRow
from stateward.drivers.simulated.faults import FaultProfile
from stateward.drivers.simulated.machine import SimulatedMachine
from stateward.drivers.simulated.provider_catalogue import IMAGES, SPECS, SimulatedImage, SimulatedSpec
from stateward.drivers.simulated.region import MACHINE, RESOURCE, USED_KEY, Region

SPEC, IMAGE, NUMBER = "spec", "image", "number"
"""The sorts of rows that belong to no region."""

DEFAULT_PROFILE = FaultProfile()


class SimulatedCloud:
    """All simulated providers; a region is created when it is first used."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        profile: FaultProfile = DEFAULT_PROFILE,
        chance: Random | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.clock, self.sleep = clock, sleep
        self.chance = chance or random.Random()  # noqa: S311 - no secret is made of it
        self._profile = profile
        self._regions: dict[str, Region] = {}  # bounded by: the regions of connections
        # bounded by: the registered sizes
        self._specs = {provider: {spec.name: spec for spec in specs} for provider, specs in SPECS.items()}
        # bounded by: the registered images
        self._images = {provider: {image.name: image for image in images} for provider, images in IMAGES.items()}
        self._file = None if path is None else CloudFile(path)  # without a file the cloud ends with its process
        self._number = 0  # of the newest machine or resource
        if self._file is not None:
            self._load(self._file)

    # --- regions ---

    def region(self, provider_region: port.ProviderRegion) -> Region:
        """Return a region."""
        return self._region(f"{provider_region.provider}/{provider_region.region}")

    def _region(self, name: str) -> Region:
        there = self._regions.get(name)
        if there is None:
            provider = name.split("/", 1)[0]
            there = Region(
                name,
                self._profile,
                self.chance,
                lambda spec, image: self.spec_problem(provider, spec, image),
                self._next_number,
            )
            self._regions[name] = there
        return there

    def set_profile(self, provider_region: port.ProviderRegion, profile: FaultProfile) -> None:
        """Replace the fault profile of a region."""
        region = self.region(provider_region)
        region.profile = region.base_profile = profile

    def save(self, region: Region) -> None:
        """Save the changes of a region; no call is answered before."""
        if not region.has_changes:
            return
        self._save(chain(region.changes(), [(NUMBER, "", "", msgpack.encode(self._number))]))
        region.mark_saved()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    # --- the catalogue ---

    def specs(self, provider: str) -> list[SimulatedSpec]:
        """Return the sizes that a provider has."""
        return list(self._specs.get(provider, {}).values())

    def images(self, provider: str) -> list[SimulatedImage]:
        """Return the images that a provider has."""
        return list(self._images.get(provider, {}).values())

    def register_spec(self, provider: str, spec: SimulatedSpec) -> None:
        """Register a size of a provider."""
        self._specs.setdefault(provider, {})[spec.name] = spec
        self._save([(SPEC, provider, spec.name, msgpack.encode(spec))])

    def register_image(self, provider: str, image: SimulatedImage) -> None:
        """Register an image of a provider."""
        self._images.setdefault(provider, {})[image.name] = image
        self._save([(IMAGE, provider, image.name, msgpack.encode(image))])

    def register(self, provider: str, spec: str, image: str) -> None:
        """Register a size and an image by name, unless the provider has them."""
        if spec not in self._specs.get(provider, ()):
            self.register_spec(provider, SimulatedSpec(spec, 1, 1.0, 0.0))
        if image not in self._images.get(provider, ()):
            self.register_image(provider, SimulatedImage(image, ""))

    def spec_problem(self, provider: str, spec: str, image: str) -> str:
        """Return what is wrong with a size and an image; empty if the provider has both."""
        if spec not in self._specs.get(provider, ()):
            return f"{provider} has no spec {spec!r}"
        return "" if image in self._images.get(provider, ()) else f"{provider} has no image {image!r}"

    # --- out-of-band changes ---

    def stop(self, provider_region: port.ProviderRegion, key: str) -> None:
        """Stop a machine, as a user of the provider's own console would."""
        self._force(provider_region, key, port.MachineState.SUSPENDED)

    def fail(self, provider_region: port.ProviderRegion, key: str) -> None:
        """Let a machine fail."""
        self._force(provider_region, key, port.MachineState.FAILED, "the host broke down")

    def terminate(self, provider_region: port.ProviderRegion, key: str) -> None:
        """Terminate a machine, as a user of the provider's own console would."""
        self._force(provider_region, key, port.MachineState.TERMINATED)

    def remove_resource(self, provider_region: port.ProviderRegion, kind: port.ResourceKind, key: str) -> None:
        """Remove a resource, as a user of the provider's own console would."""
        region = self.region(provider_region)
        region.drop_resource(kind, key)
        self.save(region)

    def create_orphan(self, provider_region: port.ProviderRegion, machine_spec: port.MachineSpec) -> port.Outcome:
        """Create a machine that no object of ours stands for."""
        region = self.region(provider_region)
        outcome = region.create(machine_spec, self.clock())
        self.save(region)
        return outcome

    def create_unmarked(self, provider_region: port.ProviderRegion, machine_spec: port.MachineSpec) -> str:
        """Create a machine as a user of the provider's own console would; it carries no key. Returns its native id."""
        region = self.region(provider_region)
        outcome = region.create(machine_spec, self.clock())
        if not isinstance(outcome, port.CallAccepted):
            raise TypeError(f"the machine was not created: {outcome}")
        region.release(port.MachineHandle(machine_spec.key), self.clock())
        self.save(region)
        return outcome.native_id

    def _force(
        self, provider_region: port.ProviderRegion, key: str, state: port.MachineState, trouble: str = ""
    ) -> None:
        region = self.region(provider_region)
        region.force(key, state, self.clock(), trouble)
        self.save(region)

    # --- the file ---

    def _save(self, rows: Iterable[CloudRow]) -> None:
        if self._file is not None:
            self._file.save(rows)

    def _load(self, file: CloudFile) -> None:
        """Restore the cloud from its file."""
        for provider, name, body in file.load(SPEC):
            self._specs.setdefault(provider, {})[name] = msgpack.decode(body, type=SimulatedSpec)
        for provider, name, body in file.load(IMAGE):
            self._images.setdefault(provider, {})[name] = msgpack.decode(body, type=SimulatedImage)
        machines, resources, used_keys = (_by_region(file.load(sort)) for sort in (MACHINE, RESOURCE, USED_KEY))
        for name in {*machines, *resources, *used_keys}:
            self._region(name).restore(
                [msgpack.decode(body, type=SimulatedMachine) for _, body in machines[name]],
                {key: msgpack.decode(body, type=int) for key, body in used_keys[name]},
                [msgpack.decode(body, type=port.CloudResource) for _, body in resources[name]],
            )
        for _, _, body in file.load(NUMBER):
            self._number = msgpack.decode(body, type=int)

    def _next_number(self) -> int:
        self._number += 1
        return self._number


def _by_region(rows: Iterator[tuple[str, str, bytes]]) -> dict[str, list[tuple[str, bytes]]]:
    regions: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
    for name, key, body in rows:
        regions[name].append((key, body))
    return regions
