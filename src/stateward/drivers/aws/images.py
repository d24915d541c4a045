"""The images of EC2 by id or by name, and the check of a size and an image."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from stateward.drivers.aws.ec2_client import Ec2Client
from stateward.drivers.cloud.errors import CloudCallFailed, refusal
from stateward.drivers.port import CallRefused, Inconclusive, RefusalReason
from stateward.drivers.remembered_images import RememberedImages


class Ec2Image(Struct, frozen=True):
    """An image that exists."""

    native_id: str
    root_device: str
    architecture: str


class ImageLookup:
    """Finds images, and remembers them for a while: a repeated create must have the same image as the first."""

    def __init__(self, calls: Ec2Client) -> None:
        self._calls = calls
        self._found = RememberedImages[Ec2Image]()

    async def find(self, image: str) -> Ec2Image:
        """Find an image by its id, or the newest with a name; raises `CloudCallFailed`."""
        if (known := self._found.get(image)) is not None:
            return known
        found = await self._describe(image)
        self._found.put(image, found)
        return found

    async def _describe(self, image: str) -> Ec2Image:
        query: dict[str, object] = {"ImageIds": [image]}
        if not image.startswith("ami-"):
            query = {"Filters": [{"Name": "name", "Values": [image]}, {"Name": "state", "Values": ["available"]}]}
        images = (await self._calls.call("describe_images", **query)).get("Images", ())
        if not images:
            raise refusal("describe_images", RefusalReason.NOT_FOUND, f"there is no image {image!r} here")
        newest = max(images, key=lambda one: (one.get("CreationDate", ""), one["ImageId"]))
        return Ec2Image(newest["ImageId"], newest.get("RootDeviceName") or "/dev/sda1", newest.get("Architecture", ""))


async def check_spec(calls: Ec2Client, images: ImageLookup, spec: str, image: str) -> CallRefused | Inconclusive | None:
    """Return why a machine cannot be created, or that EC2 did not answer; None if it can."""
    try:
        sizes = (await calls.call("describe_instance_types", InstanceTypes=[spec])).get("InstanceTypes", ())
        if not sizes:
            return CallRefused(spec, RefusalReason.NOT_FOUND, f"there is no size {spec!r} here")
        return _mismatch(sizes[0], await images.find(image))
    except CloudCallFailed as failed:
        return failed.outcome_for(image if failed.call == "describe_images" else spec)


def _mismatch(size: Mapping[str, Any], image: Ec2Image) -> CallRefused | None:
    supported = size.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
    if not supported or not image.architecture or image.architecture in supported:
        return None
    name = size["InstanceType"]
    return CallRefused(
        name, RefusalReason.INVALID, f"{name} runs {', '.join(supported)}, and the image is for {image.architecture}"
    )
