"""Settings of the ovc domain: time-outs of transitions, storage of disks, and the interval of drift detection.

`ovc.toml` in the data folder:

    storage = "files"            # or "none": disks are records without files
    look_every = 30.0            # seconds between two checks of a node's machines; 0: never
    [timeouts]
    "vm.STOPPING" = 120.0        # seconds
    "vm.migrate" = 600.0
"""

import tomllib
from pathlib import Path
from shutil import which
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from stateward.domains.ovc.lifecycle import LIFECYCLES
from stateward.domains.ovc.model import short_kind
from stateward.drivers.qemu.disks import TOOL
from stateward.errors import BadInput, UnknownName
from stateward.lifecycle import Lifecycle, Row
from stateward.lifecycle.rows import BEGINNINGS
from stateward.validation_texts import bad_input

SETTINGS_FILE = "ovc.toml"


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of the domain; `timeouts` by `kind.TRANSITION`."""

    storage: Literal["auto", "files", "none"] = "auto"
    timeouts: dict[str, float] = {}
    look_every: Annotated[float, Meta(ge=0.0)] = 30.0

    @property
    def files(self) -> bool:
        """Whether disks are files."""
        return self.storage == "files" or (self.storage == "auto" and which(TOOL) is not None)


def read_settings(folder: Path) -> Settings:
    """Read the settings of a data folder; without a file, return the defaults."""
    file = folder / SETTINGS_FILE
    try:
        content = tomllib.loads(file.read_text("utf-8")) if file.exists() else {}
        settings = msgspec.convert(content, Settings)
    except msgspec.ValidationError as error:
        raise bad_input(error, Settings, SETTINGS_FILE) from error
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(SETTINGS_FILE, str(file), f"a file of settings: {error}") from error
    with_timeouts(settings.timeouts)
    return settings


def with_timeouts(timeouts: dict[str, float]) -> dict[str, Lifecycle]:
    """Return the lifecycles by kind, with the time-outs that are set."""
    known_names = {
        f"{short_kind(lifecycle.kind)}.{_transition_name(row)}"
        for lifecycle in LIFECYCLES
        for row in lifecycle.rows
        if row.meaning in BEGINNINGS
    }
    for name in timeouts:
        if name not in known_names:
            raise UnknownName("transition", name, sorted(known_names))
    by_kind = {lifecycle.kind: lifecycle for lifecycle in LIFECYCLES}
    for kind, lifecycle in by_kind.items():
        start = f"{short_kind(kind)}."
        ours = {name.removeprefix(start): within for name, within in timeouts.items() if name.startswith(start)}
        if ours:
            rows = tuple(
                replace(row, within=ours.get(_transition_name(row), row.within)) for row in lifecycle.declaration.rows
            )
            by_kind[kind] = Lifecycle(replace(lifecycle.declaration, rows=rows))
    return by_kind


def _transition_name(row: Row) -> str:
    """Return the name of a transition: its state, or its action if it has no state."""
    return row.event if row.via is None else row.via.word
