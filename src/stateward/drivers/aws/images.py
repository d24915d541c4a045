"""The images of EC2 by id or by name, and the check of a size and an image."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from stateward.drivers.aws.client import Ec2Client
from stateward.drivers.cloud.errors import refusal
from stateward.drivers.cloud.images import CloudImages, RememberedImages
from stateward.drivers.port import RefusalReason


class Ec2Image(Struct, frozen=True):
    """An image that exists."""

    native_id: str
    root_device: str
    architecture: str


class Ec2Images(CloudImages[Mapping[str, Any], Ec2Image]):
    """Finds sizes and images."""

    def __init__(self, calls: Ec2Client) -> None:
        self._calls = calls
        self._found = RememberedImages[Ec2Image]()

    async def size(self, spec: str) -> Mapping[str, Any]:
        """Find a size by its name."""
        sizes = (await self._calls.call("describe_instance_types", InstanceTypes=[spec])).get("InstanceTypes", ())
        if not sizes:
            raise refusal("describe_instance_types", RefusalReason.NOT_FOUND, f"there is no size {spec!r} here")
        size: Mapping[str, Any] = sizes[0]
        return size

    async def image(self, image: str) -> Ec2Image:
        """Find an image by its id, or the newest with a name."""
        if (known := self._found.get(image)) is not None:
            return known
        described = await self._describe(image)
        self._found.put(image, described)
        return described

    def mismatch(self, spec: str, size: Mapping[str, Any], image: Ec2Image) -> str:
        """Return why an image cannot run on a size; empty if it can."""
        supported = size.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
        if not supported or not image.architecture or image.architecture in supported:
            return ""
        return f"{spec} runs {', '.join(supported)}, and the image is for {image.architecture}"

    async def _describe(self, image: str) -> Ec2Image:
        query: dict[str, object] = {"ImageIds": [image]}
        if not image.startswith("ami-"):
            query = {"Filters": [{"Name": "name", "Values": [image]}, {"Name": "state", "Values": ["available"]}]}
        images = (await self._calls.call("describe_images", **query)).get("Images", ())
        if not images:
            raise refusal("describe_images", RefusalReason.NOT_FOUND, f"there is no image {image!r} here")
        newest = max(images, key=lambda candidate: (candidate.get("CreationDate", ""), candidate["ImageId"]))
        return Ec2Image(newest["ImageId"], newest.get("RootDeviceName") or "/dev/sda1", newest.get("Architecture", ""))
