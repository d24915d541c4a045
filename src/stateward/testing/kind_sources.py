"""What the test kit takes kinds from: a domain, kinds, or a function that returns either."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from stateward.engine.kinds import Kind

KindSource: TypeAlias = Iterable[Kind] | Callable[[], Iterable[Kind]]


def kinds_of(source: KindSource) -> list[Kind]:
    """Return the kinds."""
    return list(source() if callable(source) else source)
