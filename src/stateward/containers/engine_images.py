"""The images of Docker and Podman."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from urllib.parse import quote

import msgspec

from stateward.containers import resource_wire
from stateward.containers.container_records import ContainerImage, PullProgress, RegistryLogin
from stateward.containers.engine_requests import pull_reference, registry_auth
from stateward.containers.engine_transport import MAX_MESSAGE, EngineTransport, read_pieces, refusal_reason
from stateward.containers.errors import EngineRefusal, EngineRefused, EngineUnavailable
from stateward.containers.json_lines import BadLine, LineSplitter

PULL_SILENCE_S = 600.0
"""How long an engine may report nothing of a pull: Podman is silent while it loads a layer."""

TRANSFER_TIMEOUT_S = 600.0
"""How long a load or an import may take."""

MIB = 1 << 20

_IMAGE = msgspec.json.Decoder(resource_wire.ImageJson)
_PROGRESS = msgspec.json.Decoder(resource_wire.ProgressJson)
_TAR = {"Content-Type": "application/x-tar"}


class EngineImages:
    """The part of the client that is about images."""

    _transport: EngineTransport

    async def inspect_image(self, image: str) -> ContainerImage:
        """Return an image by its name, digest or id."""
        path = f"/images/{quote(image, safe='/:@')}/json"
        try:
            return resource_wire.image_record(await self._transport.read(_IMAGE, f"inspect image {image}", path))
        except EngineRefused as error:
            if error.reason is EngineRefusal.NOT_FOUND:
                raise EngineRefused(EngineRefusal.IMAGE_MISSING, error.call, error.message) from error
            raise

    async def pull_image(self, image: str, login: RegistryLogin | None = None) -> AsyncGenerator[PullProgress]:
        """Pull an image, and yield the progress; an image that is pinned by its digest is verified at the end."""
        reference, digest = pull_reference(image)
        call = f"pull {reference}"
        headers = {"X-Registry-Auth": registry_auth(login)} if login else {}
        params = {"fromImage": reference}
        async with (
            self._transport.stream(call, "POST", "/images/create", params=params, headers=headers) as answer,
            aclosing(read_pieces(call, answer, PULL_SILENCE_S)) as pieces,
        ):
            async for report in read_progress(call, pieces):
                yield report
        pulled = await self.inspect_image(reference)
        if digest and not any(known.endswith(f"@{digest}") for known in pulled.digests):
            raise EngineRefused(EngineRefusal.INVALID, call, f"the image that came has the digests {pulled.digests}")

    async def load_images(self, archive: bytes | AsyncIterator[bytes]) -> None:
        """Load images from a tar archive of images."""
        answer = await self._transport.call(
            "load images", "POST", "/images/load", TRANSFER_TIMEOUT_S, content=archive, headers=_TAR
        )
        for line in answer.content.splitlines():
            if line.strip():
                parse_progress("load images", line)


def describe_pull(layers: Mapping[str, PullProgress]) -> str:
    """Return how far a pull is, by the last report of each layer: how much has come, or the engine's own words."""
    done, total = (sum(getattr(layer, field) for layer in layers.values()) for field in ("done_bytes", "total_bytes"))
    return f"{done / MIB:.1f} of {total / MIB:.1f} MiB" if total else list(layers.values())[-1].status


async def read_progress(call: str, pieces: AsyncIterator[bytes]) -> AsyncGenerator[PullProgress]:
    """Yield the reports of a pull; a report of an error is a refusal, whatever the status of the answer was."""
    lines = LineSplitter()
    try:
        async for piece in pieces:
            for line in lines.feed(piece):
                yield parse_progress(call, line)
        if rest := lines.rest():
            yield parse_progress(call, rest)
    except BadLine as error:
        raise EngineUnavailable(call, str(error), sent=True) from error


def parse_progress(call: str, line: bytes) -> PullProgress:
    """Return a report of progress; raises `EngineRefused` if it is one of an error."""
    try:
        progress = _PROGRESS.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EngineUnavailable(call, f"its progress cannot be read ({error})", sent=True) from error
    if progress.error:
        raise EngineRefused(refusal_reason(0, progress.error), call, progress.error[:MAX_MESSAGE])
    return resource_wire.progress_record(progress)
