"""One simulated world of providers: it outlives the drivers that look at it and, with a file, the server too.

It runs on a clock and a sleep that are given to it, and draws all chances from one source, so that under virtual time
one seed gives one run.
"""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain
from pathlib import Path
from random import Random

from msgspec import msgpack

from stateward.drivers.port import CloudResource, MachineSpec, MachineState, Outcome, ProviderRegion, ResourceKind
from stateward.drivers.simulated.cloud_file import Disk, File, NoDisk, Row
from stateward.drivers.simulated.faults import Temper
from stateward.drivers.simulated.machine import Machine
from stateward.drivers.simulated.provider_catalogue import IMAGES, SPECS, Image, Spec
from stateward.drivers.simulated.region import GRAVE, MACHINE, PART, Region

SPEC, IMAGE, NUMBER = "spec", "image", "number"
"""What is kept beside the regions."""

MILD = Temper()


class SimulatedCloud:
    """All simulated providers with all their regions, which come to be when they are first asked for."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        temper: Temper = MILD,
        chance: Random | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.clock, self.sleep = clock, sleep
        self.chance = chance or random.Random()  # noqa: S311 - no secret is made of it
        self._temper = temper
        self._regions: dict[str, Region] = {}
        self._specs = {provider: {spec.name: spec for spec in specs} for provider, specs in SPECS.items()}
        self._images = {provider: {image.name: image for image in images} for provider, images in IMAGES.items()}
        self._disk: Disk = NoDisk() if path is None else File(path)
        self._number = 0  # of the newest machine or part
        self._load()

    # --- regions ---

    def region(self, place: ProviderRegion) -> Region:
        """Return the region of a place."""
        return self._region(f"{place.provider}/{place.region}")

    def _region(self, name: str) -> Region:
        there = self._regions.get(name)
        if there is None:
            provider = name.split("/", 1)[0]
            there = Region(
                name,
                self._temper,
                self.chance,
                lambda spec, image: self.wrong(provider, spec, image),
                self._next_number,
            )
            self._regions[name] = there
        return there

    def set_temper(self, place: ProviderRegion, temper: Temper) -> None:
        """Let a region behave in another way from now on."""
        region = self.region(place)
        region.temper = region.nature = temper

    def keep(self, region: Region) -> None:
        """Write down what has changed in a region, if anything has; nothing is answered before."""
        if not region.changed:
            return
        self._disk.save(chain(region.changes(), self._newest()))
        region.settled()

    def close(self) -> None:
        """Let go of the file."""
        self._disk.close()

    # --- the catalogue ---

    def specs(self, provider: str) -> list[Spec]:
        """Return the sizes that a provider has."""
        return list(self._specs.get(provider, {}).values())

    def images(self, provider: str) -> list[Image]:
        """Return the images that a provider has."""
        return list(self._images.get(provider, {}).values())

    def register_spec(self, provider: str, spec: Spec) -> None:
        """Let a provider have one more size."""
        self._specs.setdefault(provider, {})[spec.name] = spec
        self._disk.save([(SPEC, provider, spec.name, msgpack.encode(spec))])

    def register_image(self, provider: str, image: Image) -> None:
        """Let a provider have one more image."""
        self._images.setdefault(provider, {})[image.name] = image
        self._disk.save([(IMAGE, provider, image.name, msgpack.encode(image))])

    def learn(self, provider: str, spec: str, image: str) -> None:
        """Let a provider have a size and an image that it does not have yet, by their names alone."""
        if spec not in self._specs.get(provider, ()):
            self.register_spec(provider, Spec(spec, 1, 1.0, 0.0))
        if image not in self._images.get(provider, ()):
            self.register_image(provider, Image(image, ""))

    def wrong(self, provider: str, spec: str, image: str) -> str:
        """Say what is wrong with a size and an image; nothing if the provider has both."""
        if spec not in self._specs.get(provider, ()):
            return f"{provider} has no spec {spec!r}"
        return "" if image in self._images.get(provider, ()) else f"{provider} has no image {image!r}"

    # --- behind our back ---

    def stop(self, place: ProviderRegion, key: str) -> None:
        """Stop a machine at the provider, as somebody does it in the provider's own console."""
        self._force(place, key, MachineState.SUSPENDED)

    def kill(self, place: ProviderRegion, key: str) -> None:
        """Let a machine break down."""
        self._force(place, key, MachineState.FAILED, "the host broke down")

    def terminate(self, place: ProviderRegion, key: str) -> None:
        """Terminate a machine at the provider."""
        self._force(place, key, MachineState.TERMINATED)

    def lose(self, place: ProviderRegion, kind: ResourceKind, key: str) -> None:
        """Remove a part at the provider, as somebody does it in the provider's own console."""
        region = self.region(place)
        region.lose(kind, key)
        self.keep(region)

    def orphan(self, place: ProviderRegion, want: MachineSpec) -> Outcome:
        """Make a machine that nobody of ours has asked for."""
        region = self.region(place)
        outcome = region.create(want, self.clock())
        self.keep(region)
        return outcome

    def _force(self, place: ProviderRegion, key: str, state: MachineState, trouble: str = "") -> None:
        region = self.region(place)
        region.force(key, state, self.clock(), trouble)
        self.keep(region)

    # --- the file ---

    def _load(self) -> None:
        """Be as it was when the file was last written."""
        for provider, name, body in self._disk.load(SPEC):
            self._specs.setdefault(provider, {})[name] = msgpack.decode(body, type=Spec)
        for provider, name, body in self._disk.load(IMAGE):
            self._images.setdefault(provider, {})[name] = msgpack.decode(body, type=Image)
        self._load_regions()

    def _load_regions(self) -> None:
        machines, parts, graves = (_by_region(self._disk.load(sort)) for sort in (MACHINE, PART, GRAVE))
        for name in {*machines, *parts, *graves}:
            self._region(name).restore(
                [msgpack.decode(body, type=Machine) for _, body in machines[name]],
                {key: msgpack.decode(body, type=int) for key, body in graves[name]},
                [msgpack.decode(body, type=CloudResource) for _, body in parts[name]],
            )
        for _, _, body in self._disk.load(NUMBER):
            self._number = msgpack.decode(body, type=int)

    def _newest(self) -> Iterator[Row]:
        yield NUMBER, "", "", msgpack.encode(self._number)

    def _next_number(self) -> int:
        self._number += 1
        return self._number


def _by_region(rows: Iterator[tuple[str, str, bytes]]) -> dict[str, list[tuple[str, bytes]]]:
    found: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
    for name, key, body in rows:
        found[name].append((key, body))
    return found
