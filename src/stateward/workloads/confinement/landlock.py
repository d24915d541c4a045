"""Landlock: a thread restricts itself, and the processes that it starts, to a list of paths.

Landlock needs no privilege. A restricted process also cannot trace others, nor read their environments and memory in
`/proc`. From version 6 of the interface on (Linux 6.12) it cannot signal others or connect to their abstract sockets.
"""

import ctypes
import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from stateward.workloads.confinement.syscalls import (
    LANDLOCK_ADD_RULE,
    LANDLOCK_CREATE_RULESET,
    LANDLOCK_RESTRICT_SELF,
    LIBC,
    call,
    open_handle,
)

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
READ = EXECUTE | READ_FILE | READ_DIR
SCOPES = 0b11
"""No abstract sockets of other processes, and no signals to them."""

HANDLED = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
"""All rights on files, by the version of the interface; later versions add other rights."""

Rule = tuple[Path, int]
"""A path, and the rights on it and on all below it."""


@cache
def version() -> int:
    """Return the version of the kernel's interface; 0 if it has none."""
    return max(0, int(LIBC.syscall(ctypes.c_long(LANDLOCK_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(1))))


def every_right() -> int:
    """Return all rights on files that the kernel knows."""
    return HANDLED[min(version(), 3)]


def restrict(rules: Iterable[Rule]) -> None:
    """Restrict this thread to the paths of these rules; needs `no_new_privs`."""
    attributes = (ctypes.c_uint64 * 3)(every_right(), 0, SCOPES if version() >= 6 else 0)
    size = 24 if version() >= 6 else 8
    ruleset = call(LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0, doing="landlock_create_ruleset")
    try:
        for path, rights in rules:
            with suppress(FileNotFoundError, PermissionError):  # a missing path needs no rule
                _add(ruleset, path, rights & every_right())
        call(LANDLOCK_RESTRICT_SELF, ruleset, 0, doing="landlock_restrict_self")
    finally:
        os.close(ruleset)


def _add(ruleset: int, path: Path, rights: int) -> None:
    with open_handle(path, os.O_PATH | os.O_CLOEXEC) as handle:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= OF_FILES
        rule = ctypes.create_string_buffer(rights.to_bytes(8, "little") + handle.to_bytes(4, "little"), 12)
        call(LANDLOCK_ADD_RULE, ruleset, 1, rule, 0, doing=f"landlock_add_rule {path}")


def without(paths: Iterable[Path], hidden: Sequence[Path]) -> list[Path]:
    """Return paths that cover the same files, except the hidden ones."""
    kept: list[Path] = []
    for path in paths:
        if any(path == hidden_path or hidden_path in path.parents for hidden_path in hidden):
            continue
        if any(path in hidden_path.parents for hidden_path in hidden):
            with suppress(OSError):
                # A rule for a link would open what it leads to.
                kept += without(sorted(child for child in path.iterdir() if not child.is_symlink()), hidden)
        else:
            kept.append(path)
    return kept
