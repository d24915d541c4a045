"""The flavors of Nova and the images of Glance by id or by name, and the check of a size and an image."""

import re
from typing import Any

from msgspec import Struct

from stateward.drivers.cloud.errors import CloudCallFailed, refusal
from stateward.drivers.openstack.cloud_client import ApiCall, OpenStackClient
from stateward.drivers.port import CallRefused, Inconclusive, RefusalReason
from stateward.drivers.remembered_images import RememberedImages

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


class FlavorLookup:
    """Finds flavors and images, and remembers them for a while: a repeated create must have the same as the first."""

    def __init__(self, calls: OpenStackClient) -> None:
        self._calls = calls
        self._flavors: dict[str, NovaFlavor] = {}  # bounded by: the flavors of the cloud
        self._images = RememberedImages[GlanceImage]()

    async def flavor(self, spec: str) -> NovaFlavor:
        """Find a flavor by its name or id; raises `CloudCallFailed`."""
        if spec not in self._flavors:
            self._flavors |= await self._list_flavors()
        if spec not in self._flavors:
            raise refusal("ListFlavors", RefusalReason.NOT_FOUND, f"there is no flavor {spec!r} here")
        return self._flavors[spec]

    async def image(self, image: str) -> GlanceImage:
        """Find an image by its id, or the newest with a name; raises `CloudCallFailed`."""
        if (known := self._images.get(image)) is not None:
            return known
        found = await self._find_image(image)
        self._images.put(image, found)
        return found

    async def _list_flavors(self) -> dict[str, NovaFlavor]:
        call = ApiCall("ListFlavors", "compute", "GET", "/flavors/detail")
        every = [_flavor(one) async for page in self._calls.pages(call, "flavors") for one in page]
        return {one.native_id: one for one in every} | {one.name: one for one in every}  # a name counts first

    async def _find_image(self, image: str) -> GlanceImage:
        if UUID.fullmatch(image):
            answer = await self._calls.call(ApiCall("GetImage", "image", "GET", f"/images/{image}"))
            found = [answer.body] if isinstance(answer.body, dict) else []
        else:
            call = ApiCall("ListImages", "image", "GET", "/images", params={"name": image, "status": "active"})
            found = [one async for page in self._calls.pages(call, "images") for one in page]
        usable = [one for one in found if one.get("status") == "active"]
        if not usable:
            raise refusal("ListImages", RefusalReason.NOT_FOUND, f"there is no active image {image!r} here")
        newest = max(usable, key=lambda one: (str(one.get("created_at", "")), str(one["id"])))
        return GlanceImage(str(newest["id"]), int(newest.get("min_ram") or 0), int(newest.get("min_disk") or 0))


def _flavor(shown: dict[str, Any]) -> NovaFlavor:
    return NovaFlavor(str(shown["id"]), str(shown["name"]), int(shown["ram"]), int(shown["disk"]))


async def check_flavor(lookup: FlavorLookup, spec: str, image: str) -> CallRefused | Inconclusive | None:
    """Return why a machine cannot be created, or that the cloud did not answer; None if it can."""
    try:
        flavor = await lookup.flavor(spec)
    except CloudCallFailed as failed:
        return failed.outcome_for(spec)
    try:
        return _mismatch(flavor, await lookup.image(image))
    except CloudCallFailed as failed:
        return failed.outcome_for(image)


def _mismatch(flavor: NovaFlavor, image: GlanceImage) -> CallRefused | None:
    if flavor.ram < image.min_ram:
        text = f"{flavor.name} has {flavor.ram} MiB of memory, and the image needs {image.min_ram}"
    elif 0 < flavor.disk < image.min_disk:
        text = f"{flavor.name} has a disk of {flavor.disk} GiB, and the image needs {image.min_disk}"
    else:
        return None
    return CallRefused(flavor.name, RefusalReason.INVALID, text)
