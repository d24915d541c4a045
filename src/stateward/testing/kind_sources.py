"""What the test kit takes kinds from: a domain, kinds, or a function that returns either."""

import atexit
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, TypeAlias

from stateward.engine.kinds import Kind
from stateward.errors import BadInput
from stateward.plugin.domain import DomainPlugin
from stateward.plugin.runtime import DomainRuntime, ProcessContext

Domain: TypeAlias = DomainPlugin | DomainRuntime | Kind | Iterable[Kind]
KindSource: TypeAlias = Domain | Callable[[], Domain]


def runtime_of(source: KindSource) -> DomainRuntime:
    """Return the runtime of a domain, as a process of its own has it; its background tasks are not started."""
    given = source() if callable(source) else source
    if isinstance(given, DomainRuntime):
        return given
    if isinstance(given, DomainPlugin):
        return given.create_runtime(ProcessContext(_data_dir(), offers_local=False))
    kinds: list[Any] = [given] if isinstance(given, Kind) or not hasattr(given, "__iter__") else list(given)
    for kind in kinds:
        if not isinstance(kind, Kind):
            raise BadInput("kinds", type(kind).__name__, "a domain, kinds, or a function that returns either")
    return DomainRuntime(kinds)


@cache
def _data_dir() -> Path:
    folder = mkdtemp(prefix="stateward-test-")
    atexit.register(rmtree, folder, ignore_errors=True)
    return Path(folder)
