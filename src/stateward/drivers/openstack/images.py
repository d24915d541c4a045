"""The flavors of Nova and the images of Glance by id or by name, and the check of a size and an image."""

import re
from typing import Any

from msgspec import Struct

from stateward.drivers.cloud.errors import refusal
from stateward.drivers.cloud.images import CloudImages, RememberedImages
from stateward.drivers.openstack.client import ApiCall, OpenStackClient
from stateward.drivers.port import RefusalReason

UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class NovaFlavor(Struct, frozen=True):
    """A size that exists: memory in MiB, disk in GiB."""

    native_id: str
    name: str
    ram: int
    disk: int


class GlanceImage(Struct, frozen=True):
    """An image that exists, and the least that it needs."""

    native_id: str
    min_ram: int
    min_disk: int


class OpenStackImages(CloudImages[NovaFlavor, GlanceImage]):
    """Finds flavors and images, and remembers them for a while: a repeated create must have the same as the first."""

    def __init__(self, calls: OpenStackClient) -> None:
        self._calls = calls
        self._flavors: dict[str, NovaFlavor] = {}  # bounded by: the flavors of the cloud
        self._found = RememberedImages[GlanceImage]()

    async def size(self, spec: str) -> NovaFlavor:
        """Find a flavor by its name or id."""
        if spec not in self._flavors:
            self._flavors |= await self._list_flavors()
        if spec not in self._flavors:
            raise refusal("ListFlavors", RefusalReason.NOT_FOUND, f"there is no flavor {spec!r} here")
        return self._flavors[spec]

    async def image(self, image: str) -> GlanceImage:
        """Find an image by its id, or the newest with a name."""
        if (known := self._found.get(image)) is not None:
            return known
        if UUID.fullmatch(image):
            answer = await self._calls.call(ApiCall("GetImage", "image", "GET", f"/images/{image}"))
            images = [answer.body] if isinstance(answer.body, dict) else []
        else:
            call = ApiCall("ListImages", "image", "GET", "/images", params={"name": image, "status": "active"})
            images = [candidate async for page in self._calls.pages(call, "images") for candidate in page]
        usable = [candidate for candidate in images if candidate.get("status") == "active"]
        if not usable:
            raise refusal("ListImages", RefusalReason.NOT_FOUND, f"there is no active image {image!r} here")
        newest = max(usable, key=lambda candidate: (str(candidate.get("created_at", "")), str(candidate["id"])))
        described = GlanceImage(str(newest["id"]), int(newest.get("min_ram") or 0), int(newest.get("min_disk") or 0))
        self._found.put(image, described)
        return described

    def mismatch(self, spec: str, size: NovaFlavor, image: GlanceImage) -> str:
        """Return why an image cannot run on a flavor; empty if it can."""
        if size.ram < image.min_ram:
            return f"{spec} has {size.ram} MiB of memory, and the image needs {image.min_ram}"
        if 0 < size.disk < image.min_disk:
            return f"{spec} has a disk of {size.disk} GiB, and the image needs {image.min_disk}"
        return ""

    async def _list_flavors(self) -> dict[str, NovaFlavor]:
        call = ApiCall("ListFlavors", "compute", "GET", "/flavors/detail")
        every = [_flavor(flavor) async for page in self._calls.pages(call, "flavors") for flavor in page]
        return {flavor.native_id: flavor for flavor in every} | {
            flavor.name: flavor for flavor in every
        }  # a name counts first


def _flavor(shown: dict[str, Any]) -> NovaFlavor:
    return NovaFlavor(str(shown["id"]), str(shown["name"]), int(shown["ram"]), int(shown["disk"]))
