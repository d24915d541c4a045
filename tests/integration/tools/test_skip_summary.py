"""The summary of what was skipped."""

from collections import Counter

from tests.skip_summary import describe, missing_packages
from tools.setup import PROGRAMS


def test_missing_packages_and_rights_are_named_once() -> None:
    reasons = Counter({"no QEMU": 3, "needs root": 7})
    first, second, *rest = describe(reasons, ["podman", "qemu-utils"], is_root=False)
    assert first.startswith("packages: apt-get install podman qemu-utils")
    assert second.startswith("rights: root")
    assert [line.split(maxsplit=1) for line in rest] == [["7", "needs root"], ["3", "no QEMU"]]


def test_root_with_all_packages_sees_only_the_reasons() -> None:
    assert list(describe(Counter({"no Landlock": 1}), [], is_root=True)) == ["    1 no Landlock"]


def test_only_packages_that_tests_use_can_be_missing() -> None:
    assert set(missing_packages()) <= set(PROGRAMS.values())
