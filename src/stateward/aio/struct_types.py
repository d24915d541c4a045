"""Struct classes, prepared before threads use them.

msgspec reads the annotations of a class when it decodes the first value of it, and shows its unfinished description of
the class to other threads meanwhile: two first values in two threads crash the process. The guards of an engine on
SQLite run in the thread of the store, the rest on the event loop, and agents read files in threads.
"""

from collections.abc import Iterator
from contextlib import suppress
from threading import Lock
from weakref import WeakSet

import msgspec
from msgspec import Struct

_lock = Lock()
_prepared: WeakSet[type[Struct]] = WeakSet()


def prepare_struct_types() -> None:
    """Let msgspec describe all classes that are loaded."""
    with _lock:
        for struct in [subclass for subclass in _subclasses(Struct) if subclass not in _prepared]:
            with suppress(Exception):  # it is not for decoding
                msgspec.json.Decoder(struct)
            _prepared.add(struct)


def _subclasses(base: type[Struct]) -> Iterator[type[Struct]]:
    for subclass in base.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
