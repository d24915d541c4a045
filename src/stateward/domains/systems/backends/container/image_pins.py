"""Images of services: a tag is resolved once, by the deploy, and stays what it was then.

A tag may move at any time. Without a pin, two instances of one service could run different images, and a rollback could
bring something that never ran. So a deploy stores the image's id, by which containers are created, and its digest, by
which it is pulled again if the engine has lost it.
"""

import asyncio
import logging
from contextlib import aclosing

from stateward.containers import ContainerEngine, ContainerImage, EngineRefusal, EngineRefused, RegistryLogin
from stateward.domains.systems.definition import PinnedImage, Service
from stateward.drivers.credential_fields import CredentialField, CredentialMissing, read_fields

log = logging.getLogger("stateward.systems")

LOGIN_FIELDS = (
    CredentialField("server", "SERVER"),
    CredentialField("username", "USERNAME"),
    CredentialField("password", "PASSWORD"),
)
DEFAULT_REGISTRY = "docker.io"


class ImagePins:
    """Resolves and pulls images; concurrent pulls of one image are one pull."""

    def __init__(self, engine: ContainerEngine) -> None:
        self._engine = engine
        self._pulls: dict[tuple[str, str | None], asyncio.Task[None]] = {}

    async def pin(self, service: Service) -> PinnedImage:
        """Return what the image of a service is now; pulls it as the service wants."""
        image = service.image or ""
        if service.pull == "always":
            await self._pull(image, service.registry_login)
        try:
            found = await self._engine.inspect_image(image)
        except EngineRefused as error:
            if error.reason is not EngineRefusal.IMAGE_MISSING or service.pull == "never":
                raise
            await self._pull(image, service.registry_login)
            found = await self._engine.inspect_image(image)
        return PinnedImage(found.id, _digest_of(found, image))

    async def pull_again(self, service: Service) -> None:
        """Pull the pinned image of a service that the engine has lost; raises `EngineRefused`."""
        pinned = service.pinned
        wanted = service.image if pinned is None else pinned.digest
        if service.pull == "never" or not wanted:
            what = "and it is not to be pulled" if service.pull == "never" else "and it has no digest to pull it by"
            raise EngineRefused(
                EngineRefusal.IMAGE_MISSING, f"use image {service.image}", f"the engine does not have it, {what}"
            )
        await self._pull(wanted, service.registry_login)

    async def _pull(self, image: str, login: str | None) -> None:
        key = image, login
        if key not in self._pulls:
            self._pulls[key] = asyncio.create_task(self._pull_now(image, login))
            self._pulls[key].add_done_callback(lambda _: self._pulls.pop(key, None))
        await asyncio.shield(self._pulls[key])

    async def _pull_now(self, image: str, login: str | None) -> None:
        credential = None if login is None else await asyncio.to_thread(read_login, login, image)
        async with aclosing(self._engine.pull_image(image, credential)) as reports:
            async for _ in reports:
                pass
        log.info("image %s was pulled", image)

    async def close(self) -> None:
        """Cancel the pulls."""
        for task in list(self._pulls.values()):
            task.cancel()
        await asyncio.gather(*self._pulls.values(), return_exceptions=True)


def read_login(reference: str, image: str) -> RegistryLogin:
    """Read the credential for an image's registry; it is given to no registry but its own."""
    found = read_fields(reference, LOGIN_FIELDS)
    if found["server"] != registry_of(image):
        raise CredentialMissing(reference, f"it is for another registry than that of {image}")
    return RegistryLogin(found["username"], found["password"], found["server"])


def registry_of(image: str) -> str:
    """Return the registry of an image; a name without one is at Docker Hub."""
    first, slash, _ = image.partition("/")
    return first if slash and (first == "localhost" or "." in first or ":" in first) else DEFAULT_REGISTRY


def _digest_of(found: ContainerImage, image: str) -> str:
    """Return the digest of an image, by the name that it was deployed with if there are several."""
    if "@" in image:
        return image
    name, slash, last = image.rpartition("/")
    repository = f"{name}{slash}{last.partition(':')[0]}"
    named = (one for one in found.digests if one.partition("@")[0].endswith(repository))
    return next(named, next(iter(found.digests), ""))
