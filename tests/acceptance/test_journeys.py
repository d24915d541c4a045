"""The journeys through the code that the design page describes: their files exist, and few files run on the way."""

import re
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from types import FrameType

import pytest

from stateward.store import open_store
from tests.integration.domains.mci.api_harness import NS, mci, open_api

ROOT = Path(__file__).parents[2]
SOURCE = f"{ROOT / 'src' / 'stateward'}/"
MOST = {"POST suspend of an MCI": 40, "The start of a lease": 30, "Recovery after kill -9": 10}
"""How many files the design page names for each journey."""

NOT_ON_THE_WAY = ("server/live/", "server/telemetry/")
"""What follows the journal in the same process: the live stream and the metrics."""

MOST_RUN, MOST_BEFORE_ENGINE = 95, 21
"""How many files run at most, in all and before the engine is reached. The goals are 55 and 13."""

IS_REQUEST = ContextVar("is_request", default=False)


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


class FileTrace:
    """The files of the product of which a function has run, in order, in all threads that begin after this one."""

    def __init__(self) -> None:
        self.is_on = False
        self.files: dict[str, None] = {}
        self.of_request: dict[str, None] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if self.is_on and event == "call" and path.startswith(SOURCE):
            file = path.removeprefix(SOURCE)
            if not file.startswith(NOT_ON_THE_WAY):
                self.files[file] = None
                if IS_REQUEST.get():
                    self.of_request[file] = None


@pytest.fixture
def trace() -> Iterator[FileTrace]:
    made = FileTrace()
    threading.setprofile(made)
    sys.setprofile(made)
    yield made
    sys.setprofile(None)
    threading.setprofile(None)


async def test_few_files_run_between_the_request_to_suspend_an_mci_and_its_end(
    trace: FileTrace, tmp_path: Path
) -> None:
    async with open_api(tmp_path, open_store(str(tmp_path / "stateward.db")), lease=600.0) as api:
        await api.created()
        for action in ("suspend", "resume"):  # so that nothing is done for the first time
            await api.done(f"/ns/{NS}/mci/{mci()['name']}?action={action}")
        trace.is_on = True
        IS_REQUEST.set(True)
        await api.done(f"/ns/{NS}/mci/{mci()['name']}?action=suspend")
        trace.is_on = False
    files = list(trace.of_request)
    assert len(files[: files.index("engine/engine.py")]) <= MOST_BEFORE_ENGINE, files
    assert len(trace.files) <= MOST_RUN, sorted(trace.files)
