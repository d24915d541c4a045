"""Images of Azure, and the check of a size and an image.

An image is `publisher:offer:sku:version` of the marketplace (`latest` is a version), or the id of an image or of an
image of a gallery.
"""

from collections.abc import Mapping
from time import monotonic
from typing import Any

from msgspec import Struct

from stateward.drivers.azure.client import ArmClient
from stateward.drivers.azure.names import normal_location, properties_of
from stateward.drivers.cloud.errors import refusal
from stateward.drivers.cloud.images import CloudImages
from stateward.drivers.port import RefusalReason

URN_PARTS = ("publisher", "offer", "sku", "version")
IMAGE_MEANS = "publisher:offer:sku:version, or the id of an image"
ID_FIELDS = {
    "/subscriptions/": "id",
    "/communitygalleries/": "communityGalleryImageId",
    "/sharedgalleries/": "sharedGalleryImageId",
}
SIZES_LIFETIME_S = 600.0
"""How long the sizes of a location are remembered: the listing of them has thousands of entries."""


class VmSize(Struct, frozen=True):
    """A size of virtual machines in a location."""

    architecture: str
    closed_zones: frozenset[str]  # where this subscription may not use it
    is_closed: bool  # in the whole location


def image_reference(image: str) -> dict[str, str]:
    """Return an image as Azure refers to it; raises `CloudCallFailed` for a text that is none."""
    for start, field in ID_FIELDS.items():
        if image.lower().startswith(start):
            return {field: image}
    parts = image.split(":")
    if len(parts) == len(URN_PARTS) and all(parts):
        return dict(zip(URN_PARTS, parts, strict=True))
    raise refusal("image", RefusalReason.INVALID, f"the image {image!r} must be {IMAGE_MEANS}")


class AzureImages(CloudImages[VmSize, str]):
    """Finds the sizes of a location, which it remembers for a while, and the processors that images are for."""

    def __init__(self, calls: ArmClient) -> None:
        self._calls = calls
        self._sizes: dict[str, VmSize] = {}
        self._read_at = float("-inf")

    async def size(self, spec: str) -> VmSize:
        """Find a size that this subscription can use in the driver's zone."""
        if monotonic() - self._read_at > SIZES_LIFETIME_S:
            self._sizes, self._read_at = await self._read(), monotonic()
        size = self._sizes.get(spec.lower())
        if size is None:
            raise refusal("size", RefusalReason.NOT_FOUND, f"there is no size {spec!r} here")
        if size.is_closed or (await self._calls.settings()).zone in size.closed_zones:
            raise refusal("size", RefusalReason.CAPACITY, f"the size {spec!r} is not available to this subscription")
        return size

    async def image(self, image: str) -> str:
        """Find an image, and return the processor that it is for; empty if that is not known."""
        reference = image_reference(image)
        if "publisher" in reference:
            return await _marketplace_architecture(self._calls, reference)
        lookup = await _lookup_by_id(self._calls, image) if "id" in reference else None
        if lookup is None:
            return ""  # of another subscription: only Azure itself can check it
        return str(properties_of(await self._calls.call(*lookup)).get("architecture") or "")

    def mismatch(self, spec: str, size: VmSize, image: str) -> str:
        """Return why an image cannot run on a size; empty if it can."""
        if not size.architecture or not image or image.lower() == size.architecture.lower():
            return ""
        return f"{spec} runs {size.architecture}, and the image is for {image}"

    async def _read(self) -> dict[str, VmSize]:
        location = (await self._calls.scope()).location
        listed = self._calls.pages("compute.resource_skus.list", filter=f"location eq '{normal_location(location)}'")
        return {
            str(sku.get("name", "")).lower(): _size(sku)
            async for sku in listed
            if sku.get("resourceType") == "virtualMachines"
        }


def _size(listed: Mapping[str, Any]) -> VmSize:
    abilities = {capability.get("name"): capability.get("value") for capability in listed.get("capabilities") or ()}
    restrictions = listed.get("restrictions") or ()
    zones = [
        (restriction.get("restrictionInfo") or {}).get("zones") or ()
        for restriction in restrictions
        if restriction.get("type") == "Zone"
    ]
    return VmSize(
        architecture=str(abilities.get("CpuArchitectureType") or ""),
        closed_zones=frozenset(zone for each in zones for zone in each),
        is_closed=any(restriction.get("type") == "Location" for restriction in restrictions),
    )


async def _marketplace_architecture(calls: ArmClient, reference: Mapping[str, str]) -> str:
    location = normal_location((await calls.scope()).location)
    sku = (location, reference["publisher"], reference["offer"], reference["sku"])
    version = reference["version"]
    if version == "latest":
        listed: Any = await calls.call("compute.virtual_machine_images.list", *sku, top=1, orderby="name desc")
        versions = [str(entry["name"]) for entry in listed]
        if not versions:
            text = f"there is no image {':'.join(sku[1:])!r} here"
            raise refusal("compute.virtual_machine_images.list", RefusalReason.NOT_FOUND, text)
        version = versions[0]
    image = await calls.call("compute.virtual_machine_images.get", *sku, version)
    return str(properties_of(image).get("architecture") or "")


async def _lookup_by_id(calls: ArmClient, image: str) -> tuple[str, ...] | None:
    """Return the call that reads an image of this subscription, with its arguments; None if there is none."""
    parts = image.split("/")
    if (await calls.scope()).subscription.lower() != parts[2].lower():
        return None
    group, kinds, names = parts[4:5], [part.lower() for part in parts[7::2]], parts[8::2]
    lookups = {
        ("images",): "compute.images.get",
        ("galleries", "images"): "compute.gallery_images.get",
        ("galleries", "images", "versions"): "compute.gallery_image_versions.get",
    }
    call = lookups.get(tuple(kinds))
    if call is None or len(kinds) != len(names):
        raise refusal("image", RefusalReason.INVALID, f"the image {image!r} must be {IMAGE_MEANS}")
    return (call, *group, *(names[:3] if "versions" in kinds else names))
