"""`stateward new domain`: write a package with a domain of one's own."""

import re
import shutil
import tempfile
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from stateward import __version__
from stateward.client.output import out
from stateward.errors import BadInput
from stateward.plugin.domain import NAME, RESERVED
from stateward.plugin.registry import installed

app = typer.Typer(no_args_is_help=True, help="Write the package of a domain of your own.")

TEMPLATE_ENDING = ".in"
"""The files of the template are neither code nor settings of this package, so they have this ending."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The domain's name: lower-case letters and digits.")]
Folder = Annotated[
    Path | None, typer.Option("--folder", metavar="DIR", help="The new folder; stateward-NAME if not given.")
]


@app.callback()
def _group() -> None:
    """Write a package to begin with."""


@app.command()
def domain(name: Name, folder: Folder = None) -> None:
    """Write a package with a domain of your own: lifecycle, handlers, typed spec, tests, CI file, README."""
    if not NAME.fullmatch(name):
        raise BadInput("NAME", name, "2 to 31 lower-case letters and digits, that begin with a letter")
    taken = {*RESERVED, *installed().names}
    if name in taken:
        raise BadInput("NAME", name, f"a name of its own, and none of {', '.join(sorted(taken))}")
    place = folder or Path(f"stateward-{name}")
    write_package(place, {"name": name, "package": f"stateward-{name}", "module": f"stateward_{name}"})
    out().print(
        f"{place} is written. Next:\n  cd {place}\n  pip install -e '.[dev]'\n  pytest\n  stateward serve",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def write_package(folder: Path, values: Mapping[str, str]) -> None:
    """Write the package of a new domain; a folder that exists is refused, and none is left half written."""
    if folder.exists():
        raise BadInput("--folder", str(folder), "a folder that does not exist yet")
    marks = {f"@{mark}@": value for mark, value in {**values, "requires": compatible_versions()}.items()}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
            written = Path(temporary) / folder.name
            with as_file(files("stateward.cli") / "domain_template") as template:
                for file in sorted(entry for entry in template.rglob(f"*{TEMPLATE_ENDING}") if entry.is_file()):
                    path = _filled_in(str(file.relative_to(template)).removesuffix(TEMPLATE_ENDING), marks)
                    (written / path).parent.mkdir(parents=True, exist_ok=True)
                    (written / path).write_text(_filled_in(file.read_text("utf-8"), marks), "utf-8")
            shutil.move(written, folder)
    except OSError as error:
        raise BadInput("--folder", str(folder), f"a folder that can be written ({error.strerror})") from error


def compatible_versions() -> str:
    """Return the range of versions that a new domain works with: this one, up to the next that may break it."""
    major, minor = map(int, __version__.split(".")[:2])
    return f">={major}.{minor},<{major}.{minor + 1}"


def _filled_in(text: str, marks: Mapping[str, str]) -> str:
    return re.sub("|".join(map(re.escape, marks)), lambda match: marks[match[0]], text)
