"""The agent's local state survives a crash."""

import os
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from stateward.agents.local_state import Deployed, LocalState

THING = Deployed("c1:web", "appinst", 7, False, "c1", "{}", ("a", "b"))


def test_what_is_noted_is_there_after_a_crash_as_it_was_noted_last(tmp_path: Path) -> None:
    notebook = LocalState(tmp_path)
    notebook.save(THING)
    notebook.save(replace(THING, whole=True))
    assert list(LocalState(tmp_path)) == [replace(THING, whole=True)]


def test_what_is_struck_out_is_gone(tmp_path: Path) -> None:
    notebook = LocalState(tmp_path)
    notebook.save(THING)
    notebook.remove(THING.name)
    assert notebook.get(THING.name) is None
    assert list(LocalState(tmp_path)) == []


def test_a_line_that_was_not_finished_does_not_count(tmp_path: Path) -> None:
    LocalState(tmp_path).save(THING)
    (file,) = tmp_path.glob("*.json")
    file.with_suffix(".new").write_bytes(b'{"name": "c1:w')
    assert list(LocalState(tmp_path)) == [THING]


def test_a_record_that_cannot_be_read_is_set_aside_and_the_others_are_read(tmp_path: Path) -> None:
    notebook = LocalState(tmp_path)
    notebook.save(THING)
    (tmp_path / "0.json").write_bytes(b'{"name": "c1"')
    notebook.reload()
    assert list(notebook) == [THING]
    assert [file.name for file in tmp_path.glob("*.unreadable")] == ["0.unreadable"]


def test_a_line_is_on_disk_before_it_takes_the_place_of_the_former(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook, synced = LocalState(tmp_path), list[tuple[Deployed, Deployed]]()
    notebook.save(THING)
    (file,) = tmp_path.glob("*.json")

    def sync(handle: int) -> None:
        both = Path(f"/proc/self/fd/{handle}"), file
        former, new = (msgspec.json.decode(one.read_bytes(), type=Deployed) for one in reversed(both))
        synced.append((former, new))

    monkeypatch.setattr(os, "fsync", sync)
    notebook.save(replace(THING, whole=True))
    assert synced == [(THING, replace(THING, whole=True))]
