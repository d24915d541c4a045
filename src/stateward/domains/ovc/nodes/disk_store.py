"""The store of disks and images: one folder that all nodes share, with a file for each.

The caller names a file after an object (`model.file_name`), never after an id alone: all namespaces share the folder.
All methods are idempotent. A clone and its source share a base file that neither writes to.
"""

import asyncio
import os
from collections.abc import Awaitable
from itertools import count
from pathlib import Path
from typing import Protocol

from stateward.domains.ovc.model import BUILT_IN_IMAGE
from stateward.drivers.qemu.disks import copy_disk, layer_disk, locked_disk, make_disk
from stateward.drivers.qemu.errors import DiskBusy, DiskError
from stateward.drivers.qemu.guest import GUESTS
from stateward.drivers.qemu.hardware import HOST_ARCH
from stateward.engine import Permanent, Temporary

MAX_CONCURRENT_FILES = 4
"""Files that are created at the same time."""
IMAGE_SIZE_BYTES = 1 << 20
IMAGE_FORMATS = {".qcow2": "qcow2", ".raw": "raw", ".img": "raw"}


class DiskStore(Protocol):
    """A store of disks and images."""

    def path_of(self, disk: str) -> str:
        """Return the path of a disk's file."""

    async def create(self, disk: str, gib: int, image: str = "") -> None:
        """Create a disk, empty or from an image."""

    async def clone(self, disk: str, source: str, gib: int) -> None:
        """Create a disk with the contents of another one, which is not in use meanwhile."""

    async def create_image(self, image: str, source: str) -> None:
        """Create an image, from the built-in guest or a file of the library."""

    def image_problem(self, source: str) -> str:
        """Return why no image can be created from a source; empty if one can."""

    async def remove(self, id_: str) -> None:
        """Remove a disk or an image."""

    async def exists(self, id_: str) -> bool:
        """Tell whether there is such a disk or image."""

    async def list_files(self) -> frozenset[str]:
        """Return the names of all files of disks and images; each begins with an id, before the first dot."""


class NoDiskStore:
    """A store without files: disks are only records, for drivers that do not use them."""

    async def _do_nothing(self, *_given: object, **_named: object) -> None:
        """Do nothing: there are no files."""

    create = clone = create_image = remove = _do_nothing

    def path_of(self, disk: str) -> str:
        """Return a path without a file."""
        return f"{disk}.none"

    def image_problem(self, source: str) -> str:  # noqa: ARG002 - nothing is made of it
        """Return no problem: images have no files here."""
        return ""

    async def exists(self, id_: str) -> bool:  # noqa: ARG002 - the same for all
        """Return False: there are no files."""
        return False

    async def list_files(self) -> frozenset[str]:
        """Return none."""
        return frozenset()


class FileDiskStore:
    """A store of qcow2 files in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._library = root / "library"
        self._library.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._turns = asyncio.Semaphore(MAX_CONCURRENT_FILES)

    def _path(self, id_: str) -> Path:
        return self._root / f"{id_}.qcow2"

    def path_of(self, disk: str) -> str:
        """Return the path of a disk's file."""
        return str(self._path(disk))

    async def create(self, disk: str, gib: int, image: str = "") -> None:
        """Create a disk."""
        await self._run_limited(make_disk(self._path(disk), gib, self._path(image) if image else None))

    async def create_image(self, image: str, source: str) -> None:
        """Create an image."""
        if source == BUILT_IN_IMAGE:
            file = self._library / f"{BUILT_IN_IMAGE}.raw"
            await asyncio.to_thread(file.write_bytes, GUESTS[HOST_ARCH].ljust(IMAGE_SIZE_BYTES, b"\0"))
        else:
            file = self._library / source
        trouble = await asyncio.to_thread(self.image_problem, source)
        if trouble:
            raise Permanent(trouble)
        await self._run_limited(copy_disk(self._path(image), file, IMAGE_FORMATS[file.suffix]))

    def image_problem(self, source: str) -> str:
        """Return why no image can be created from a source."""
        file = self._library / source
        if source == BUILT_IN_IMAGE or (file.suffix in IMAGE_FORMATS and file.is_file()):
            return ""
        return f"the library has no image {source!r} (of the form {', '.join(IMAGE_FORMATS)})"

    async def clone(self, disk: str, source: str, gib: int) -> None:
        """Make the source's file the base of both disks; one clone of a source is made at a time.

        The source has a file at any moment: the base is first a hard link to it, and then a new file on top of the base
        replaces the source's own name atomically.
        """
        own = self._path(source)
        async with locked_disk(own):
            if self._path(disk).exists():
                return
            # The base of an earlier attempt stays, because the disk's file may be on top of it, but is not used again:
            # the disk may have changed since.
            name = f"{source}.base-{disk}"
            numbered = (self._root / f"{name}.{number}" for number in count(1))
            base = self._root / name
            while base.exists() and not base.samefile(own):
                base = next(numbered)
            if not base.exists():
                base.hardlink_to(own)
            try:
                await self._run_limited(layer_disk(own, base))
            finally:
                if base.samefile(own):
                    base.unlink()
            await self._run_limited(make_disk(self._path(disk), gib, base))

    async def _run_limited(self, making: Awaitable[None]) -> None:
        async with self._turns:
            try:
                await making
            except DiskBusy as error:
                raise Temporary(str(error)) from error
            except DiskError as error:
                raise Permanent(str(error)) from error

    async def remove(self, id_: str) -> None:
        """Remove a disk or an image, with its base files and what killed attempts have left."""

        def unlink_all() -> None:
            for file in self._root.glob(f"{id_}.*"):
                file.unlink(missing_ok=True)

        await asyncio.to_thread(unlink_all)

    async def exists(self, id_: str) -> bool:
        """Tell whether there is such a disk or image."""
        return await asyncio.to_thread(self._path(id_).exists)

    async def list_files(self) -> frozenset[str]:
        """Return the names of all files of disks and images; the library is not among them."""
        return await asyncio.to_thread(self._files)

    def _files(self) -> frozenset[str]:
        with os.scandir(self._root) as entries:
            return frozenset(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
