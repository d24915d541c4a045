"""Images of services: a tag is resolved once, by the deploy, and stays what it was then.

A tag may move at any time. Without a pin, two instances of one service could run different images, and a rollback could
bring something that never ran. So a deploy stores the image's id, by which containers are created, and its digest, by
which it is pulled again if the engine has lost it.
"""

import asyncio
import logging
from contextlib import aclosing
from functools import partial

from stateward.containers import (
    ContainerEngine,
    ContainerImage,
    EngineRefusal,
    EngineRefused,
    PullProgress,
    RegistryLogin,
    describe_pull,
    registry_of,
)
from stateward.domains.systems.backends.port import ReportText
from stateward.domains.systems.definition import PinnedImage, Service
from stateward.drivers.credential_fields import CredentialField, CredentialMissing, read_fields

log = logging.getLogger("stateward.systems")

LOGIN_FIELDS = (
    CredentialField("server", "SERVER"),
    CredentialField("username", "USERNAME"),
    CredentialField("password", "PASSWORD"),
)

REPORT_INTERVAL_S = 1.0
"""Seconds between two lines of progress of a pull."""


class ImagePull:
    """A pull that is under way: the last report of each layer."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.layers: dict[str, PullProgress] = {}  # bounded by: the layers of one image
        self.task: asyncio.Task[None]

    @property
    def text(self) -> str:
        """How far it is."""
        return f"pulling {self.image}{f': {describe_pull(self.layers)}' if self.layers else ''}"


class ImagePins:
    """Resolves and pulls images; concurrent pulls of one image are one pull."""

    def __init__(self, engine: ContainerEngine) -> None:
        self._engine = engine
        self._pulls: dict[tuple[str, str | None], ImagePull] = {}

    async def pin(self, service: Service, report: ReportText) -> PinnedImage:
        """Return what the image of a service is now; pulls it as the service wants."""
        image = service.image or ""
        if service.pull == "always":
            await self._pull(image, service.registry_login, report)
        try:
            inspected = await self._engine.inspect_image(image)
        except EngineRefused as error:
            if error.reason is not EngineRefusal.IMAGE_MISSING or service.pull == "never":
                raise
            await self._pull(image, service.registry_login, report)
            inspected = await self._engine.inspect_image(image)
        return PinnedImage(inspected.id, _digest_of(inspected, image))

    async def pull_again(self, service: Service, report: ReportText) -> None:
        """Pull the pinned image of a service that the engine has lost; raises `EngineRefused`."""
        pinned = service.pinned
        wanted = service.image if pinned is None else pinned.digest
        if service.pull == "never" or not wanted:
            what = "and it is not to be pulled" if service.pull == "never" else "and it has no digest to pull it by"
            raise EngineRefused(
                EngineRefusal.IMAGE_MISSING, f"use image {service.image}", f"the engine does not have it, {what}"
            )
        await self._pull(wanted, service.registry_login, report)

    async def _pull(self, image: str, login: str | None, report: ReportText) -> None:
        """Pull an image, or wait for the pull of it that is under way; reports how far it is."""
        key = image, login
        if (pull := self._pulls.get(key)) is None:
            pull = self._pulls[key] = ImagePull(image)
            pull.task = asyncio.create_task(self._pull_now(pull, login))
            pull.task.add_done_callback(partial(self._forget, key))
        reported = ""
        while not pull.task.done():
            if pull.text != reported:
                reported = pull.text
                await report(reported)
            await asyncio.wait([pull.task], timeout=REPORT_INTERVAL_S)
        pull.task.result()
        await report(f"{image} is pulled")

    async def _pull_now(self, pull: ImagePull, login: str | None) -> None:
        credential = None if login is None else await asyncio.to_thread(read_login, login, pull.image)
        async with aclosing(self._engine.pull_image(pull.image, credential)) as reports:
            async for report in reports:
                pull.layers[report.layer] = report
        log.info("image %s was pulled", pull.image)

    def _forget(self, key: tuple[str, str | None], task: "asyncio.Task[None]") -> None:
        del self._pulls[key]
        if not task.cancelled():
            task.exception()  # nobody may wait for it any more

    async def close(self) -> None:
        """Cancel the pulls."""
        tasks = [pull.task for pull in self._pulls.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def read_login(reference: str, image: str) -> RegistryLogin:
    """Read the credential for an image's registry; it is given to no registry but its own."""
    fields = read_fields(reference, LOGIN_FIELDS)
    if fields["server"] != registry_of(image):
        raise CredentialMissing(reference, f"it is for another registry than that of {image}")
    return RegistryLogin(fields["username"], fields["password"], fields["server"])


def _digest_of(inspected: ContainerImage, image: str) -> str:
    """Return the digest of an image, by the name that it was deployed with if there are several."""
    if "@" in image:
        return image
    name, slash, last = image.rpartition("/")
    repository = f"{name}{slash}{last.partition(':')[0]}"
    named = (digest for digest in inspected.digests if digest.partition("@")[0].endswith(repository))
    return next(named, next(iter(inspected.digests), ""))
