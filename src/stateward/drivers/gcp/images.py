"""The images of Compute Engine by address, name or family, and the check of a size and an image.

An image is in a project. A name alone is looked for in the own project, and then in the project that publishes such
images: `debian-12` is a family of `debian-cloud`. A family means its newest image that is not deprecated.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from stateward.drivers.cloud.errors import found_or_none, refusal
from stateward.drivers.cloud.images import CloudImages, RememberedImages
from stateward.drivers.gcp.client import GceClient
from stateward.drivers.port import RefusalReason

PUBLIC_PROJECTS = {
    "centos": "centos-cloud",
    "cos": "cos-cloud",
    "debian": "debian-cloud",
    "fedora-coreos": "fedora-coreos-cloud",
    "rhel": "rhel-cloud",
    "rocky-linux": "rocky-linux-cloud",
    "sles": "suse-cloud",
    "ubuntu": "ubuntu-os-cloud",
    "windows": "windows-cloud",
}
"""The projects that publish images, by the beginning of the images' names."""


ARCHITECTURES = {"ARM64", "X86_64"}


class ImageAddress(Struct, frozen=True):
    """An image or a family in a project."""

    project: str
    name: str
    is_family: bool

    @property
    def source(self) -> str:
        """The address that an instance is created from."""
        return f"projects/{self.project}/global/images/{'family/' if self.is_family else ''}{self.name}"


class GceImages(CloudImages[Any, Any]):
    """Finds sizes and images, and remembers where a name is: in which project, and whether it is a family."""

    def __init__(self, calls: GceClient) -> None:
        self._calls = calls
        self._found = RememberedImages[ImageAddress]()

    async def size(self, spec: str) -> Any:  # noqa: ANN401 - the library's type
        """Find a machine type by its name."""
        return await self._calls.call("machine_types.get", machine_type=spec)

    async def image(self, image: str) -> Any:  # noqa: ANN401
        """Find an image, the newest if it is a family."""
        return (await self._find(image))[1]

    def mismatch(self, spec: str, size: Any, image: Any) -> str:  # noqa: ANN401
        """Return why an image cannot run on a size; empty if it can."""
        if {size.architecture, image.architecture} != ARCHITECTURES:
            return ""
        return f"{spec} is for {size.architecture}, and the image is for {image.architecture}"

    async def source(self, image: str) -> str:
        """Return the address of an image; it is looked up only if it is not complete. Raises `CloudCallFailed`."""
        if (address := parse_address(image)) is not None:
            return address.source
        if (known := self._found.get(image)) is not None:
            return known.source
        return (await self._find(image))[0].source

    async def _find(self, image: str) -> tuple[ImageAddress, Any]:
        for address in self._candidates(image, (await self._calls.settings()).project):
            record = await found_or_none(self._get(address))
            if record is not None:
                self._found.put(image, address)
                return address, record
        raise refusal("images.get", RefusalReason.NOT_FOUND, f"there is no image and no family {image!r} here")

    async def _get(self, address: ImageAddress) -> Any:  # noqa: ANN401
        if address.is_family:
            return await self._calls.call("images.get_from_family", project=address.project, family=address.name)
        return await self._calls.call("images.get", project=address.project, image=address.name)

    def _candidates(self, image: str, project: str) -> Iterator[ImageAddress]:
        if (address := parse_address(image)) is not None:
            yield address
            return
        public = [name for start, name in PUBLIC_PROJECTS.items() if image.startswith(start)]
        for place in [project, *public]:
            yield ImageAddress(place, image, is_family=False)
            yield ImageAddress(place, image, is_family=True)


def parse_address(image: str) -> ImageAddress | None:
    """Return the address that a text is: `projects/P/global/images/N` or `.../images/family/F`, also as a URL."""
    match image[image.find("projects/") :].split("/"):
        case ["projects", project, "global", "images", "family", name]:
            return ImageAddress(project, name, is_family=True)
        case ["projects", project, "global", "images", name]:
            return ImageAddress(project, name, is_family=False)
    return None
