"""What tests of machines on this host share: folders in which nothing stays behind."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.drivers.local.host_machines import kill_all_in, live_processes_in


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Give a test a folder for machines; at its end no process is left, and no file."""
    path = tmp_path / "place"
    yield path
    kill_all_in(path)
    assert live_processes_in(path) == []
    shutil.rmtree(path, ignore_errors=True)
    assert not path.exists()
