"""Packages of others need nothing private: the example and the template of new domains import public modules only."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PUBLIC = {
    "stateward.client",
    "stateward.engine",
    "stateward.lifecycle",
    "stateward.plugin",
    "stateward.store",
    "stateward.testing",
}
IMPORT = re.compile(r"^\s*(?:from|import) (stateward(?:\.\w+)*)\b(?!_)", re.MULTILINE)
FILES = [
    *(ROOT / "examples" / "dns").rglob("*.py"),
    *(ROOT / "src" / "stateward" / "cli" / "domain_template").rglob("*.py.in"),
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_only_public_modules_are_imported(file: Path) -> None:
    assert set(IMPORT.findall(file.read_text("utf-8"))) <= PUBLIC


def test_the_files_import_something() -> None:
    assert set().union(*(IMPORT.findall(file.read_text("utf-8")) for file in FILES)) == PUBLIC
