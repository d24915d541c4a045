"""Images of services: a tag is resolved once, by the deploy, and stays what it was then.

A tag may move at any time. Without a pin, two instances of one service could run different images, and a rollback could
bring something that never ran. So a deploy stores the image's id, by which containers are created, and its digest, by
which it is pulled again if the engine has lost it.
"""

import asyncio

from stateward.containers import EngineRefusal, EngineRefused, RegistryLogin, registry_of
from stateward.credential_fields import CredentialField, CredentialMissing, read_fields
from stateward.domains.systems.backends.port import ReportText
from stateward.domains.systems.definition import PinnedImage, Service
from stateward.workloads.images import EngineImageStore, digest_of

LOGIN_FIELDS = (
    CredentialField("server", "SERVER"),
    CredentialField("username", "USERNAME"),
    CredentialField("password", "PASSWORD"),
)


class ImagePins(EngineImageStore):
    """Resolves and pulls the images of services."""

    async def pin(self, service: Service, report: ReportText) -> PinnedImage:
        """Return what the image of a service is now; pulls it as the service wants."""
        image = service.image or ""
        if service.pull == "always" or (service.pull == "missing" and await self.find(image) is None):
            await self._pull_for(service, image, report)
        inspected = await self._engine.inspect_image(image)
        return PinnedImage(inspected.id, digest_of(inspected, image))

    async def pull_again(self, service: Service, report: ReportText) -> None:
        """Pull the pinned image of a service that the engine has lost; raises `EngineRefused`."""
        pinned = service.pinned
        wanted = service.image if pinned is None else pinned.digest
        if service.pull == "never" or not wanted:
            what = "and it is not to be pulled" if service.pull == "never" else "and it has no digest to pull it by"
            raise EngineRefused(
                EngineRefusal.IMAGE_MISSING, f"use image {service.image}", f"the engine does not have it, {what}"
            )
        await self._pull_for(service, wanted, report)

    async def _pull_for(self, service: Service, image: str, report: ReportText) -> None:
        reference = service.registry_login
        login = None if reference is None else await asyncio.to_thread(read_login, reference, image)
        async for line in self.pull(image, login):
            await report(line)


def read_login(reference: str, image: str) -> RegistryLogin:
    """Read the credential for an image's registry; it is given to no registry but its own."""
    fields = read_fields(reference, LOGIN_FIELDS)
    if fields["server"] != registry_of(image):
        raise CredentialMissing(reference, f"it is for another registry than that of {image}")
    return RegistryLogin(fields["username"], fields["password"], fields["server"])
