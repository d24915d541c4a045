"""Parts that other packages bring: found by entry points, or named as `module:attribute`."""

import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import Struct

from stateward.errors import BadInput, StatewardError

T = TypeVar("T")

log = logging.getLogger("stateward.plugin")

PLACE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
OWN = str(Path(__file__).parents[1])
PACKAGE = "stateward"


class PluginFault(StatewardError):
    """A plug-in that cannot be used, with its place and the reason."""

    plugin: str
    place: str
    why: str
    text = "plug-in {plugin} ({place}) cannot be used: {why}"


class FoundPart(Struct, frozen=True):
    """Where a plug-in is: its name if that is known before it is loaded, and the package that brings it."""

    name: str
    value: str  # module:attribute
    package: str = ""

    @property
    def place(self) -> str:
        """Where it is, for a person."""
        return f"{self.value} of {self.package}" if self.package else self.value

    @property
    def is_own(self) -> bool:
        """Whether it comes with Stateward."""
        return self.package.rpartition(" ")[0] == PACKAGE

    def load(self) -> Any:  # noqa: ANN401 - whatever a package declares
        """Return the declared object; raises PluginFault with the reason if it cannot be imported."""
        try:
            return EntryPoint(self.name, self.value, "").load()
        except (Exception, SystemExit) as error:
            raise self.fault(error) from error

    def fault(self, error: BaseException) -> PluginFault:
        """Return the fault of this plug-in for an error that it raised, or that it is refused with."""
        return PluginFault(self.name or self.value, self.place, describe_error(error))


def find_parts(group: str) -> list[FoundPart]:
    """Return what installed packages declare in a group of entry points, in the order of names."""
    found = {
        FoundPart(one.name, one.value, f"{one.dist.name} {one.dist.version}" if one.dist else "")
        for one in entry_points(group=group)
    }
    return sorted(found, key=lambda one: (one.name, one.value))


class PartGroup(Struct, Generic[T], frozen=True):
    """The parts of a group by their names: those that can be used, and the faults of the others."""

    usable: dict[str, T]
    faults: dict[str, PluginFault]


def load_group(group: str, read: Callable[[Any], T], more: Iterable[FoundPart] = ()) -> PartGroup[T]:
    """Load all installed parts of a group, and more; one that cannot be used is logged, and does not stop the others.

    `read` returns what a part has declared in its right type, or raises. Of two parts with one name, that of Stateward
    counts, or else the first.
    """
    usable, faults = dict[str, T](), dict[str, PluginFault]()
    for part in sorted([*find_parts(group), *more], key=lambda one: not one.is_own):
        try:
            if part.name in usable:
                raise BadInput("name", part.name, f"another name: {group} has a part of this name")
            usable[part.name] = read(part.load())
        except Exception as error:
            fault = error if isinstance(error, PluginFault) else part.fault(error)
            log.warning("%s", fault)
            faults.setdefault(part.name, fault)
    return PartGroup(dict(sorted(usable.items())), {name: faults[name] for name in faults if name not in usable})


def named_part(value: str, field: str) -> FoundPart:
    """Return the part at `module:attribute`; modules in the working folder count, as with `python -m`."""
    if not PLACE.fullmatch(value):
        raise BadInput(field, value, "module:attribute, such as acme_lamp:domain")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return FoundPart("", value)


def describe_error(error: BaseException) -> str:
    """Return an error in words, with the last line outside of Stateward that led to it."""
    if isinstance(error, SyntaxError):
        return f"syntax error in {error.filename}, line {error.lineno}: {error.msg}"
    frames = [one for one in traceback.extract_tb(error.__traceback__) if _is_foreign(one.filename)]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    name = "" if isinstance(error, StatewardError) else f"{type(error).__name__}: "
    return f"{name}{error}{place}"


def _is_foreign(file: str) -> bool:
    return not file.startswith((OWN, "<")) and f"{Path(traceback.__file__).parent}/importlib" not in file
