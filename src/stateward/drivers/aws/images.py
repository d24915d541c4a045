"""Images of EC2 by id or by name, and the check of size and image."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from stateward.drivers.aws.ec2_client import Ec2Client
from stateward.drivers.aws.errors import Ec2CallFailed
from stateward.drivers.port import CallRefused, Inconclusive, RefusalReason


class Ec2Image(Struct, frozen=True):
    """An image that is there."""

    native_id: str
    root_device: str
    architecture: str


class ImageLookup:
    """Finds images, and keeps to what it found: a want that is repeated must name the same one."""

    def __init__(self, calls: Ec2Client) -> None:
        self._calls = calls
        self._found: dict[str, Ec2Image] = {}

    async def find(self, image: str) -> Ec2Image:
        """Find an image by its id, or the newest that goes by a name; raises `CallFailed`."""
        if image not in self._found:
            self._found[image] = await self._look(image)
        return self._found[image]

    async def _look(self, image: str) -> Ec2Image:
        by: dict[str, object] = {"ImageIds": [image]}
        if not image.startswith("ami-"):
            by = {"Filters": [{"Name": "name", "Values": [image]}, {"Name": "state", "Values": ["available"]}]}
        images = (await self._calls.call("describe_images", **by)).get("Images", ())
        if not images:
            none = CallRefused(image, RefusalReason.NOT_FOUND, f"there is no image {image!r} here")
            raise Ec2CallFailed("describe_images", "NotFound", none)
        newest = max(images, key=lambda one: (one.get("CreationDate", ""), one["ImageId"]))
        return Ec2Image(newest["ImageId"], newest.get("RootDeviceName") or "/dev/sda1", newest.get("Architecture", ""))


async def check_spec(calls: Ec2Client, images: ImageLookup, spec: str, image: str) -> CallRefused | Inconclusive | None:
    """Say why a machine cannot be made; where EC2 does not answer, say so."""
    try:
        sizes = (await calls.call("describe_instance_types", InstanceTypes=[spec])).get("InstanceTypes", ())
        if not sizes:
            return CallRefused(spec, RefusalReason.NOT_FOUND, f"there is no size {spec!r} here")
        return _mismatch(sizes[0], await images.find(image))
    except Ec2CallFailed as failed:
        return failed.outcome_for(image if failed.call == "describe_images" else spec)


def _mismatch(size: Mapping[str, Any], image: Ec2Image) -> CallRefused | None:
    able = size.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
    if not able or not image.architecture or image.architecture in able:
        return None
    name = size["InstanceType"]
    return CallRefused(
        name, RefusalReason.INVALID, f"{name} runs {', '.join(able)}, and the image is for {image.architecture}"
    )
