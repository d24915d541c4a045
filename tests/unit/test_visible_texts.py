"""Texts that people read in the console, on the command line and in refusals: patterns that must not come back.

The texts are the string literals of the modules, without comments and docstrings. Counts are written by one helper
each (`counted` in the console, `count_text` in Python), so that no text says "1 objects" or "4050 VMs".
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "stateward"

FORBIDDEN = {
    r"\(s\)": "a plural is written by the helper for counts",
    r"\banyway\b": "name the action: Delete, Retry, Send",
    r"\bMake (it|one|an?|every|first)\b": "Create",
    r"\bis on its way\b": "is being created",
    r"\b[Nn]othing fits\b": "No objects match",
    r"\bis in the way\b": "blocked by",
    r"\bwhere that needs\b": "X needs Y while Z",
    r"\bnot to be had\b": "not available",
    r"\bmay only look\b": "is read-only",
    r"\[object Object\]|\b(Type|Reference)Error\b": "a text for people",
}  # fmt: skip
"""Patterns, each with what the text says instead."""

NOUNS = "objects|VMs|operations|entries|workers|lanes|children|members|disks|orphans|records|files|times"

JS_TEXT = re.compile(r"""//[^\n]*|/\*.*?\*/|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)""", re.DOTALL)

COMMAND_LINE = ("cli", "client", *(f"domains/{one}/cli" for one in ("edge", "leases", "mci", "ovc", "systems")))

CONSOLE = [*SOURCE.glob("console/**/*.js"), *SOURCE.glob("domains/*/console.js")]


Texts = list[tuple[str, str]]


@cache
def console_texts() -> Texts:
    """Return the string literals of the console's modules, with their places."""
    return [
        (f"{path.relative_to(SOURCE)}: {found[1][:20]}", found[1][1:-1])
        for path in CONSOLE
        for found in JS_TEXT.finditer(path.read_text("utf-8"))
        if found[1]
    ]


@cache
def python_texts(*folders: str) -> Texts:
    """Return the string literals of Python modules, without docstrings; a value in an f-string is `{}`."""
    paths = [path for folder in folders for path in (SOURCE / folder).rglob("*.py")]
    return [(f"{path.relative_to(SOURCE)}:{line}", text) for path in paths for line, text in _texts_in(path)]


def _texts_in(path: Path) -> Iterator[tuple[int, str]]:
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    statements = [one.value for one in nodes if isinstance(one, ast.Expr)]
    parts = [part for one in nodes if isinstance(one, ast.JoinedStr) for part in one.values]
    left_out = {id(one) for one in (*statements, *parts)}
    for one in nodes:
        if id(one) in left_out:
            continue
        if isinstance(one, ast.JoinedStr):
            texts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in one.values)
            yield one.lineno, "".join(texts)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.lineno, one.value


def all_texts() -> Texts:
    """Return the texts of the console, of the command line and of refusals."""
    return [*console_texts(), *python_texts(*COMMAND_LINE), *python_texts("access", "engine", "lifecycle", "server")]


@pytest.fixture(scope="module")
def texts() -> Texts:
    return all_texts()


@pytest.mark.parametrize(("pattern", "instead"), FORBIDDEN.items(), ids=FORBIDDEN.values())
def test_no_text_has_a_forbidden_pattern(texts: Texts, pattern: str, instead: str) -> None:
    found = [f"{place}: {text!r}; {instead}" for place, text in texts if " " in text and re.search(pattern, text)]
    assert found == []


def test_counts_in_texts_are_written_by_the_helpers() -> None:
    in_console = re.compile(rf"(?<!of )\$\{{[^}}]*\}} (?:{NOUNS})\b")
    found = [place for place, text in console_texts() if in_console.search(text)]
    in_python = re.compile(rf"(?<!of )\{{\}} (?:{NOUNS})\b")
    found += [place for place, text in python_texts(*COMMAND_LINE) if in_python.search(text)]
    found += [str(one) for one in CONSOLE if one.name != "numbers.js" and "toLocaleString" in one.read_text("utf-8")]
    assert found == []
