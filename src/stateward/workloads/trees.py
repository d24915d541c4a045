"""Removal of folders with the files of tenants' programs.

A program may nest thousands of folders. A recursive removal would then fail, and the path of the innermost folder is
longer than the kernel accepts. So each inner folder is first moved to the top, and nothing is deeper than two levels.
Links are never followed.
"""

import logging
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISDIR
from uuid import uuid4

from stateward.workloads.confinement.syscalls import open_handle

log = logging.getLogger("stateward.drivers")

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def remove_tree(top: Path) -> bool:
    """Remove a folder, and return whether it is gone; a failure is logged."""
    if not clear_tree(top):
        return False
    try:
        top.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        log.warning("folder %s cannot be removed and stays: %s", top, error)
        return False
    return True


def clear_tree(top: Path, keep: Collection[str] = ()) -> bool:
    """Remove everything in a folder except some files, and return whether it is gone; a failure is logged."""
    try:
        with _opened(top) as root:
            while names := [name for name in os.listdir(root) if name not in keep]:  # noqa: PTH208 - a handle
                for name in names:
                    _remove(root, name)
    except FileNotFoundError:
        return not top.exists()
    except OSError as error:
        log.warning("folder %s cannot be cleared and stays: %s", top, error)
        return False
    return True


def _remove(root: int, name: str) -> None:
    """Remove a file, or a folder whose own folders are moved to the top."""
    if not _is_folder(root, name):
        os.unlink(name, dir_fd=root)
        return
    with _opened(name, root) as inner:
        for child in os.listdir(inner):  # noqa: PTH208 - a handle
            if _is_folder(inner, child):
                _unlock(child, inner)
                os.rename(child, uuid4().hex, src_dir_fd=inner, dst_dir_fd=root)
            else:
                os.unlink(child, dir_fd=inner)
    os.rmdir(name, dir_fd=root)


def _is_folder(parent: int, name: str) -> bool:
    return S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


@contextmanager
def _opened(path: Path | str, parent: int | None = None) -> Iterator[int]:
    _unlock(path, parent)
    with open_handle(path, FOLDER, parent=parent) as handle:
        yield handle


def _unlock(path: Path | str, parent: int | None) -> None:
    """Open the mode of a folder that its owner has closed. A handle is used, so that no link can lead elsewhere."""
    with open_handle(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, parent=parent) as handle:
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            Path(f"/proc/self/fd/{handle}").chmod(0o700)
