"""The journeys through the code that the design page describes: their files exist, and are few."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST = {"POST suspend of an MCI": 40, "The start of a lease": 30, "Recovery after kill -9": 10}


def journeys() -> dict[str, list[str]]:
    """Return the files of each journey, in order."""
    page = (ROOT / "docs" / "design.md").read_text()
    section = page.partition("## Three journeys")[2].partition("\n## ")[0]
    parts = section.split("\n### ")[1:]
    return {part.partition("\n")[0]: re.findall(r"`([\w/]+\.py)`", part) for part in parts}


@pytest.mark.parametrize(("begins", "most"), MOST.items())
def test_a_journey_names_files_that_exist_and_not_many(begins: str, most: int) -> None:
    ((_, files),) = ((title, found) for title, found in journeys().items() if title.startswith(begins))
    assert [file for file in files if not (ROOT / "src" / "stateward" / file).is_file()] == []
    assert len(files) == len(set(files))
    assert 0 < len(files) <= most
