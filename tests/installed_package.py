"""A small package as pip would install it: a module and a `*.dist-info` folder with entry points, on `sys.path`."""

from collections.abc import Mapping
from pathlib import Path

import pytest


def install_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str, parts: Mapping[str, Mapping[str, str]]
) -> None:
    """Install a package of one module until the test ends; `parts` are its entry points, by their groups."""
    site = folder / f"site-{name}"
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (site / f"{name}.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = (
        "\n".join([f"[{group}]", *(f"{label} = {value}" for label, value in several.items())])
        for group, several in parts.items()
    )
    (info / "entry_points.txt").write_text("\n\n".join(groups) + "\n")
    monkeypatch.syspath_prepend(str(site))
