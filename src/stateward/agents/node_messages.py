"""Messages between controllers and the agents of nodes alone: values of secrets, images, and volumes to remove."""

from typing import Annotated

from msgspec import Meta, Struct

from stateward.agents.message_types import Name, Number, Text

MAX_IMAGES = 200
"""The number of images in one request."""


MAX_SYSTEMS = 200
"""The number of deleted systems in one request."""


class SecretRequest(Struct, frozen=True, tag="read secret"):
    """A request of an agent for the value of a secret that an instance on its node needs."""

    request: Number
    notify: Number
    secret: Name


class SecretAnswer(Struct, frozen=True, tag="secret"):
    """The value of a secret, or an error that tells why there is none; with `retry` it may pass."""

    request: int
    notify: int
    value: str = ""
    error: str = ""
    retry: bool = False

    def __repr__(self) -> str:
        """Show no value: messages may be logged."""
        return f"SecretAnswer(request={self.request}, notify={self.notify}, error={self.error!r})"


class WantedImage(Struct, frozen=True, omit_defaults=True):
    """An image, when it is to be pulled, and the reference to a credential of its registry on the host of the agent."""

    image: str
    pull: str = "missing"
    login: str | None = None


class FoundImage(Struct, frozen=True, omit_defaults=True):
    """An image as an engine has it: its id, and the digest to pull it by, if there is one."""

    id: Name
    digest: Annotated[str, Meta(max_length=1_000)] = ""


class ImageRequest(Struct, frozen=True, tag="find images"):
    """A request to find out what images are now, and to pull those that the engine lacks."""

    request: int
    notify: int
    images: tuple[WantedImage, ...] = ()

    @property
    def name(self) -> str:
        """The request in a log."""
        return "images"


class ImageAnswer(Struct, frozen=True, tag="images"):
    """The images, in the order of the request; `refusal` tells what the engine said to one of them.

    `error` tells why the agent could not ask its engine.
    """

    request: Number
    notify: Number
    found: Annotated[tuple[FoundImage, ...], Meta(max_length=MAX_IMAGES)] = ()
    refusal: Text = ""
    error: Text = ""


class VolumeRemoval(Struct, frozen=True, tag="remove volumes"):
    """A request to remove the volumes of systems that were deleted."""

    request: int
    notify: int
    ns: str
    systems: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The request in a log."""
        return "volumes"


class VolumesRemoved(Struct, frozen=True, tag="volumes"):
    """The end of a removal of volumes; `error` tells why some are left."""

    request: Number
    notify: Number
    error: Text = ""
