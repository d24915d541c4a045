"""The signatures of route handlers, parsed once in a process, however many applications its tests make."""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from litestar.utils.signature import ParsedSignature

_parse = ParsedSignature.from_fn
_parsed: WeakKeyDictionary[Callable[..., Any], ParsedSignature] = WeakKeyDictionary()


def parse_signatures_once() -> None:
    """Parse the signature of each function once; each application gets parameters of its own, and may drop some."""

    def from_fn(fn: Callable[..., Any], namespace: dict[str, Any]) -> ParsedSignature:
        if fn not in _parsed:
            _parsed[fn] = _parse(fn, namespace)
        found = _parsed[fn]
        return ParsedSignature(dict(found.parameters), found.return_type, found.original_signature)

    ParsedSignature.from_fn = staticmethod(from_fn)  # type: ignore[assignment, method-assign]
