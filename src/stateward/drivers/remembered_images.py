"""The memory of images that were found by their names: after an hour, a name is looked up again.

A repeated create must have the same image as the first, and a name may lead to another one at any time. But a process
that runs for a year must not start machines from images that are a year old, or not there any more.
"""

from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

IMAGE_LIFETIME_S = 3600.0

Image = TypeVar("Image")


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
        self._found = {key: one for key, one in self._found.items() if now - one[0] < IMAGE_LIFETIME_S}
        self._found[name] = now, image
