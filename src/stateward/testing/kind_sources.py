"""What the test kit takes kinds from: a domain, kinds, or a function that returns either."""

import atexit
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TypeAlias

from stateward.engine.kinds import Kind
from stateward.plugin.domain import DomainPlugin
from stateward.plugin.runtime import DomainRuntime, ProcessContext

Domain: TypeAlias = DomainPlugin | DomainRuntime | Iterable[Kind]
KindSource: TypeAlias = Domain | Callable[[], Domain]


def runtime_of(source: KindSource) -> DomainRuntime:
    """Return the runtime of a domain, as a process of its own has it; its background tasks are not started."""
    given = source() if callable(source) else source
    if isinstance(given, DomainRuntime):
        return given
    if isinstance(given, DomainPlugin):
        return given.create_runtime(ProcessContext(_data_dir(), offers_local=False))
    return DomainRuntime(list(given))


@cache
def _data_dir() -> Path:
    folder = mkdtemp(prefix="stateward-test-")
    atexit.register(rmtree, folder, ignore_errors=True)
    return Path(folder)
