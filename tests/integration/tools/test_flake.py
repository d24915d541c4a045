"""Repeated runs of the suite: what has failed, and the order that a seed gives."""

import os
import pwd
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.random_order import shuffle
from tools import as_user
from tools.flake import failures

OUTPUT = """
FAILED tests/a.py::test_one[x - y] - AssertionError: assert 1 == 2
ERROR tests/b.py::test_two
FAILED tests/a.py::test_one[x - y] - AssertionError: assert 1 == 2
PASSED tests/c.py::test_three
"""


def test_failed_tests_are_read_from_the_summary_of_a_run() -> None:
    assert failures(OUTPUT) == ["tests/a.py::test_one[x", "tests/b.py::test_two"]


def test_a_seed_gives_one_order_in_which_tests_of_a_file_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def order(seed: str) -> list[tuple[str, int]]:
        monkeypatch.setenv("ORDER_SEED", seed)
        items = [SimpleNamespace(path=Path(file), number=number) for file in "abcd" for number in range(5)]
        shuffle(items)  # type: ignore[arg-type]
        return [(item.path.name, item.number) for item in items]

    assert order("1") == order("1") != order("2")
    assert order("") == [(file, number) for file in "abcd" for number in range(5)]
    files = [file for file, _ in order("1")]
    assert [files[start : start + 5] for start in range(0, 20, 5)] == [[one] * 5 for one in files[::5]]


def test_a_copied_environment_names_its_new_folder(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program, other = tmp_path / "bin" / "stateward", tmp_path / "bin" / "other"
    program.write_text("#!/old/.venv/bin/python\n")
    other.write_text("#!/older/.venv/bin/python\n")
    as_user.relocate(tmp_path, Path("/old"), Path("/new"))
    assert (program.read_text(), other.read_text()) == ("#!/new/.venv/bin/python\n", "#!/older/.venv/bin/python\n")


def test_what_a_user_has_written_is_found_in_its_home_in_the_checkout_and_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, shared, account = tmp_path / "home" / "stateward", tmp_path / "shared", pwd.getpwuid(os.geteuid())
    shared.mkdir()
    subprocess.run(["git", "init", "--quiet", copy], check=True)
    (copy / ".gitignore").write_text("*.pyc\n")
    monkeypatch.setattr(as_user, "WRITABLE", (str(shared),))
    before = as_user.written(copy, account)
    left = {copy.parent / ".config", shared / "left", copy / "left.txt"}
    for file in {*left, copy / "ignored.pyc"}:
        file.touch()
    assert as_user.written(copy, account) - before == {
        str(copy.parent / ".config"),
        str(shared / "left"),
        "?? left.txt",
    }
