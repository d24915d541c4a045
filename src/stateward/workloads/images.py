"""Images that an engine has, or pulls; concurrent pulls of one image are one pull."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from stateward.aio.supervise import cancel_tasks
from stateward.containers import (
    ContainerEngine,
    ContainerImage,
    EngineRefusal,
    EngineRefused,
    PullProgress,
    RegistryLogin,
    describe_pull,
)

log = logging.getLogger("stateward.workloads")

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


class EngineImageStore:
    """The images of one engine."""

    def __init__(self, engine: ContainerEngine) -> None:
        self._engine = engine
        self._pulls: dict[tuple[str, RegistryLogin | None], ImagePull] = {}

    async def find(self, image: str) -> ContainerImage | None:
        """Return an image, or None if the engine does not have it."""
        try:
            return await self._engine.inspect_image(image)
        except EngineRefused as error:
            if error.reason is not EngineRefusal.IMAGE_MISSING:
                raise
            return None

    async def pull(self, image: str, login: RegistryLogin | None = None) -> AsyncGenerator[str]:
        """Pull an image, or wait for the pull of it that is under way; yields lines about how far it is."""
        key = image, login
        if (pull := self._pulls.get(key)) is None:
            pull = self._pulls[key] = ImagePull(image)
            pull.task = asyncio.create_task(self._run(pull, login))
            pull.task.add_done_callback(partial(self._forget, key))
        reported = ""
        while not pull.task.done():
            if pull.text != reported:
                reported = pull.text
                yield reported
            await asyncio.wait([pull.task], timeout=REPORT_INTERVAL_S)
        pull.task.result()
        yield f"{image} is pulled"

    async def _run(self, pull: ImagePull, login: RegistryLogin | None) -> None:
        async with aclosing(self._engine.pull_image(pull.image, login)) as reports:
            async for report in reports:
                pull.layers[report.layer] = report
        log.info("image %s was pulled", pull.image)

    def _forget(self, key: tuple[str, RegistryLogin | None], task: "asyncio.Task[None]") -> None:
        del self._pulls[key]
        if not task.cancelled():
            task.exception()  # nobody may wait for it any more

    async def close(self) -> None:
        """Cancel the pulls."""
        await cancel_tasks([pull.task for pull in self._pulls.values()])


def digest_of(inspected: ContainerImage, image: str) -> str:
    """Return the digest of an image, by the name that it was asked for with if there are several."""
    if "@" in image:
        return image
    name, slash, last = image.rpartition("/")
    repository = f"{name}{slash}{last.partition(':')[0]}"
    named = (digest for digest in inspected.digests if digest.partition("@")[0].endswith(repository))
    return next(named, next(iter(inspected.digests), ""))
