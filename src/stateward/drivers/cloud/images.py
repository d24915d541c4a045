"""The images and sizes of a cloud: found by their names, checked against each other, and remembered for an hour.

A repeated create must have the same image as the first, and a name may lead to another one at any time. But a process
that runs for a year must not start machines from images that are a year old, or not there any more.
"""

from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.port import CallRefused, Inconclusive, RefusalReason

IMAGE_LIFETIME_S = 3600.0

Image = TypeVar("Image")
Size = TypeVar("Size")


class RememberedImages(Generic[Image]):
    """Images by name, each for an hour."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._found: dict[str, tuple[float, Image]] = {}

    def get(self, name: str) -> Image | None:
        """Return what a name has led to in the last hour."""
        at, image = self._found.get(name, (-IMAGE_LIFETIME_S, None))
        return image if self._clock() - at < IMAGE_LIFETIME_S else None

    def put(self, name: str, image: Image) -> None:
        """Remember what a name leads to, and forget what is old."""
        now = self._clock()
        self._found = {key: entry for key, entry in self._found.items() if now - entry[0] < IMAGE_LIFETIME_S}
        self._found[name] = now, image


class CloudImages(Generic[Size, Image]):
    """Finds sizes and images; both raise `CloudCallFailed` for what does not exist."""

    async def size(self, spec: str) -> Size:
        """Find a size by its name."""
        raise NotImplementedError

    async def image(self, image: str) -> Image:
        """Find an image by its id or name."""
        raise NotImplementedError

    def mismatch(self, spec: str, size: Size, image: Image) -> str:
        """Return why an image cannot run on a size; empty if it can."""
        raise NotImplementedError

    async def check(self, spec: str, image: str) -> CallRefused | Inconclusive | None:
        """Return why a machine cannot be created, or that the cloud did not answer; None if it can."""
        wanted = spec
        try:
            size, wanted = await self.size(spec), image
            problem = self.mismatch(spec, size, await self.image(image))
        except CloudCallFailed as failed:
            return failed.outcome_for(wanted)
        return CallRefused(spec, RefusalReason.INVALID, problem) if problem else None
