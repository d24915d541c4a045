"""The mutants of a file: each is one change that still is Python, and what cannot matter is left as it is."""

import ast
from pathlib import Path

from tools.mutate import AREAS, ROOT, SOURCE, mutants_of

SAMPLE = '''
"""A docstring with SELECT a FROM b WHERE c < 1 AND d."""

LIMIT: int = 3


def is_late(now, due=None):
    """Return whether it is late."""
    if not now and due is None:
        raise ValueError(f"{now:5}")
    log.info("checked")
    count(now)
    return now < due


DUE = """
SELECT id FROM timers WHERE due <= ? AND owner IS NULL
"""
'''

CHANGED = {
    ("3", "4"),
    ("not now and due is None", "(not now or due is None)"),
    ("not now", "(now)"),
    ("due is None", "(due is not None)"),
    ('raise ValueError(f"{now:5}")', "pass"),
    ("count(now)", "pass"),
    ("now < due", "(now <= due)"),
}


def test_every_operator_changes_what_it_is_for() -> None:
    found = {(one.was, one.text) for one in mutants_of("sample", SOURCE / "a.py", SAMPLE.encode())}
    assert {one for one in found if "SELECT" not in one[0]} == CHANGED
    conditions = [text.partition("WHERE")[2].strip() for was, text in found if "SELECT" in was]
    assert {one.rstrip('"').strip() for one in conditions} == {
        "due > ? AND owner IS NULL",
        "due <= ? OR owner IS NULL",
        "due <= ? AND owner IS NOT NULL",
    }


def test_every_mutant_of_a_module_is_python() -> None:
    file = Path("src/stateward/store/postgres/queries.py")
    source = (ROOT / file).read_bytes()
    for one in mutants_of("postgres", file, source):
        ast.parse(source[: one.start] + one.text.encode() + source[one.end :])


def test_every_area_has_modules_and_tests() -> None:
    for area in AREAS.values():
        assert list((ROOT / SOURCE).glob(area.modules))
        assert all(list((ROOT / "tests").glob(one)) for one in area.tests)
