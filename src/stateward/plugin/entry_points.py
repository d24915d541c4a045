"""Parts that other packages bring: found by entry points, or named as `module:attribute`."""

import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import Struct

from stateward.errors import BadInput, StatewardError

T = TypeVar("T")

log = logging.getLogger("stateward.plugin")

PLACE = r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*"
INFO_FOLDERS = (".dist-info", ".egg-info")
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
            module, _, attribute = self.value.partition(":")
            return reduce(getattr, filter(None, attribute.split(".")), import_module(module))
        except (Exception, SystemExit) as error:
            raise self.fault(error) from error

    def fault(self, error: BaseException) -> PluginFault:
        """Return the fault of this plug-in for an error that it raised, or that it is refused with."""
        return PluginFault(self.name or self.value, self.place, describe_error(error))


def find_parts(group: str) -> list[FoundPart]:
    """Return what installed packages declare in a group of entry points, in the order of names."""
    return sorted(set(_declared_parts(group)), key=lambda part: (part.name, part.value))


def _declared_parts(group: str) -> Iterator[FoundPart]:
    """Read the entry points of the packages in the folders of `sys.path`; of two with one name, the first one counts.

    The standard library's reader also opens archives, but its import takes a quarter of the time of `--help`.
    """
    seen = set[str]()
    for folder in sys.path:
        for info, lines in _package_infos(Path(folder).absolute()):
            name = re.sub(r"[-_.]+", "-", info.name.partition("-")[0]).lower()
            if name not in seen:
                seen.add(name)
                entries = list(_entries(lines, group))
                package = _named_version(info) if entries else ""
                yield from (FoundPart(*pair, package) for pair in entries)


def _package_infos(folder: Path) -> Sequence[tuple[Path, Sequence[str]]]:
    """Return the packages in a folder, each with the lines of its entry points."""
    try:
        return _read_packages(folder, folder.stat().st_mtime_ns)
    except OSError:  # an archive, or a folder that is not there
        return ()


@lru_cache(maxsize=64)  # a process looks for several groups, and the files of all packages are read for each
def _read_packages(folder: Path, _changed_ns: int) -> Sequence[tuple[Path, Sequence[str]]]:
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.name.endswith(INFO_FOLDERS))
    return [(folder / name, _read_lines(folder / name / "entry_points.txt")) for name in names]


def _named_version(info: Path) -> str:
    """Return the name and the version of a package, from the head of its metadata."""
    head = dict[str, str]()
    for line in _read_lines(info / ("METADATA" if info.suffix == ".dist-info" else "PKG-INFO")):
        if not line:
            break
        field, _, value = line.partition(":")
        head.setdefault(field, value.strip())
    return f"{head.get('Name', info.name.partition('-')[0])} {head.get('Version', '')}"


def _entries(lines: Sequence[str], group: str) -> Iterator[tuple[str, str]]:
    """Yield the names and places in a group of a file with entry points."""
    section = ""
    for line in (raw.strip() for raw in lines):
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section == group and line and line[0] not in "#;":
            name, _, value = line.partition("=")
            yield name.strip(), value.partition("[")[0].strip()


def _read_lines(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


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
    for part in sorted([*find_parts(group), *more], key=lambda candidate: not candidate.is_own):
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
    if not re.fullmatch(PLACE, value):
        raise BadInput(field, value, "module:attribute, such as acme_lamp:domain")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return FoundPart("", value)


def describe_error(error: BaseException) -> str:
    """Return an error in words, with the last line outside of Stateward that led to it."""
    if isinstance(error, SyntaxError):
        return f"syntax error in {error.filename}, line {error.lineno}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_foreign(frame.filename)]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    name = "" if isinstance(error, StatewardError) else f"{type(error).__name__}: "
    return f"{name}{error}{place}"


def _is_foreign(file: str) -> bool:
    return not file.startswith((OWN, "<")) and f"{Path(traceback.__file__).parent}/importlib" not in file
