"""Images for an agent's containers: found in the engine, loaded from an administrator's folder, or pulled.

Credentials of registries are in a file on the agent's host. A credential is sent to its own registry alone, so an app
that names another registry cannot collect it.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from stateward.agents.site import ReportProgress, SiteError
from stateward.aio.named_locks import NamedLocks
from stateward.containers import ContainerEngine, RegistryLogin, registry_of
from stateward.domains.edge.sites.app_manifest import AppPart
from stateward.errors import StatewardError
from stateward.workloads.images import EngineImageStore

PIECE_BYTES = 1 << 20


class BadLogins(StatewardError):
    """The file of registry logins cannot be used."""

    file: str
    why: str
    text = (
        "the registry logins in {file} cannot be used: {why}. It must be JSON such as "
        '{{"registry.example.com": {{"username": "...", "password": "..."}}}}, and only its owner may read it'
    )


class StoredLogin(Struct, frozen=True, forbid_unknown_fields=True):
    """The credential of a registry in the file."""

    username: str
    password: str


def read_logins(file: Path) -> dict[str, RegistryLogin]:
    """Read the registry logins, by registry; raises `BadLogins`, without a word of what is in the file."""
    try:
        if file.stat().st_mode & 0o077:
            raise BadLogins(str(file), "others than its owner may read or change it")
        logins = msgspec.json.decode(file.read_bytes(), type=dict[str, StoredLogin])
    except OSError as error:
        raise BadLogins(str(file), error.strerror or "it cannot be read") from error
    except msgspec.MsgspecError as error:
        raise BadLogins(str(file), "it does not have this form") from error
    return {server: RegistryLogin(login.username, login.password, server) for server, login in logins.items()}


class ImageSource(EngineImageStore):
    """Where images come from."""

    def __init__(
        self, engine: ContainerEngine, archives: Path | None = None, logins: Mapping[str, RegistryLogin] | None = None
    ) -> None:
        super().__init__(engine)
        self._archives, self._logins = archives, logins or {}
        self._loads = NamedLocks()

    async def ensure(self, part: AppPart, report_progress: ReportProgress) -> None:
        """Have the engine have a part's image."""
        if await self.find(part.image) is not None:
            return
        if part.archive:
            async with self._loads[part.image]:
                if await self.find(part.image) is None:  # no other order has loaded it
                    await self._load(part, report_progress)
            return
        async for line in self.pull(part.image, self._logins.get(registry_of(part.image))):
            report_progress(line)

    async def _load(self, part: AppPart, report_progress: ReportProgress) -> None:
        if self._archives is None:
            raise SiteError(f"archive: {part.archive!r} cannot be loaded: the agent has no folder of images (--images)")
        file = self._archives / part.archive
        if not file.is_file():
            raise SiteError(f"archive: there is no file {part.archive!r} in the agent's folder of images")
        report_progress(f"loading {part.image} from {part.archive}")
        await self._engine.load_images(_pieces(file))
        if await self.find(part.image) is None:
            raise SiteError(f"archive: {part.archive!r} does not hold the image {part.image}")


async def _pieces(file: Path) -> AsyncIterator[bytes]:
    with file.open("rb") as stream:
        while piece := await asyncio.to_thread(stream.read, PIECE_BYTES):
            yield piece
