"""Change the product in one place at a time, and list the changes that the nearest tests don't notice.

    make mutate ARGS="--count 20 --seed 7 engine leases"

Each mutant is one changed comparison, `and`/`or`, dropped `not` or statement, constant, or condition of an SQL text. It
is made in a copy of `src` that comes first in the path of the tests, so the tree itself stays as it is. The nearest
tests are those of its area, beginning with the files that name most of what the changed module declares and few other
files name. A mutant is noticed if they fail; if they hang, nobody knows. A seed gives the same mutants as long as the
sources are the same.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path("src", "stateward")
AROUND = 10
"""How many other names one counts for that is declared around the change."""

FIRST = 4
"""How many files run before the others are even collected: most mutants are noticed by one of them."""

NO_TESTS = 5
"""The exit code of a pytest that has found no tests."""

WITHOUT = ("-pno:cacheprovider", "-pno:schemathesis", "-pno:faker")
"""Plugins that no nearest test uses; without them pytest starts in half the time."""


class Area(NamedTuple):
    """Modules of the product, and the files and folders of their tests."""

    modules: str
    tests: tuple[str, ...]
    only: tuple[str, ...] = ("not postgres", "postgres")  # the tests whose names match, one run each; cheap ones first


STORE = ("unit/store", "contract/test_[!s]*.py", "contract/test_s[!q]*.py")
ACCESS = tuple(
    f"integration/server/test_{one}.py"
    for one in ("access", "sessions", "quotas", "authentication", "last_administrator", "cross_origin", "kinds")
)
AREAS = {
    "locks": Area("locks/*.py", ("unit/locks", "unit/engine/test_row_locks.py")),
    "access": Area("access/*.py", (*ACCESS, "unit/domains/systems/test_keyring.py")),
    "engine": Area("engine/**/*.py", ("unit/engine", "integration/engine")),
    "sqlite": Area(
        "store/sqlite/*.py",
        (*STORE, "contract/test_sqlite_*.py", "integration/engine/test_working.py"),
        ("not postgres",),
    ),
    "postgres": Area("store/postgres/*.py", (*STORE, "integration/test_postgres_*.py"), ("not sqlite and not model",)),
    "agents": Area("agents/*.py", ("unit/agents", "integration/agents", "integration/domains/edge/test_[cilm]*.py")),
    "leases": Area("domains/leases/*.py", ("unit/domains/*lease*", "integration/domains/leases")),
    "containers": Area("containers/*.py", ("unit/containers", "contract/containers", "integration/containers")),
}

FLIPPED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
SQL = re.compile(r"\b(SELECT|UPDATE|DELETE|WHERE)\b")
SQL_CHANGES = {
    " AND ": " OR ", " OR ": " AND ", " IS NULL": " IS NOT NULL", " IS NOT NULL": " IS NULL", " <= ": " > ",
    " < ": " >= ", " >= ": " < ", " > ": " <= ", " <> ": " = ",
}  # fmt: skip


class Mutant(NamedTuple):
    """One change: the bytes of a file from `start` to `end` become `text`."""

    area: str
    file: Path
    line: int
    start: int
    end: int
    was: str
    text: str

    def __str__(self) -> str:
        """Return a line to print."""
        same = len(os.path.commonprefix([self.was, self.text]))  # noqa: RUF071 - texts, not paths
        before, after = (" ".join(one[max(0, same - 40) :].split())[:100] for one in (self.was, self.text))
        return f"{self.area}: {self.file.relative_to(SOURCE)}:{self.line}: {before}  ->  {after}"


def main() -> None:
    """Try a sample of mutants, and list those that nobody noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("areas", nargs="*", help=f"of {', '.join(AREAS)}; all of them if none is named")
    parser.add_argument("--count", type=int, default=10, help="mutants of each area")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", type=int, help="so many files of tests, the nearest; all without it")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for the tests of one mutant")
    chosen = parser.parse_args()
    verdicts: dict[str, list[Mutant]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for area in chosen.areas or AREAS:
            for mutant in _sample(copy, area, chosen.count, chosen.seed):
                files = _nearest(mutant, copy, chosen.files)
                for only, tests in product(AREAS[area].only, filter(None, (files[:FIRST], files[FIRST:]))):
                    verdict, by = _try(mutant, copy, ("-k", only, *tests), chosen.timeout)
                    if verdict != "SURVIVED":
                        break
                verdicts[verdict].append(mutant)
                print(f"{verdict:9} {mutant}{by}", flush=True)
    print(", ".join(f"{len(found)} {verdict}" for verdict, found in verdicts.items()))


def _sample(root: Path, area: str, count: int, seed: int) -> list[Mutant]:
    files = sorted((root / SOURCE).glob(AREAS[area].modules))
    found = [one for file in files for one in mutants_of(area, file.relative_to(root), file.read_bytes())]
    chance = random.Random(f"{seed} {area}")
    return chance.sample(found, min(count, len(found)))


def _nearest(mutant: Mutant, copy: Path, most: int | None) -> list[str]:
    """Return the files of tests of an area, those first that name most of what the module declares.

    A name counts the more, the fewer files have it: `open` or `close` say little. The names around the change count
    most; the name of an SQL text is often that of the method that runs it.
    """
    tree = ast.parse((copy / mutant.file).read_bytes())
    named, around = {mutant.file.stem}, set()
    for node in ast.walk(tree):
        found = _declared(node)
        named |= found
        if found and node.lineno <= mutant.line <= (node.end_lineno or node.lineno):  # type: ignore[attr-defined]
            around |= found
    words = re.compile("|".join(rf"\b{one}\b" for one in named if not one.startswith("_")))
    given = [path for one in AREAS[mutant.area].tests for path in (ROOT / "tests").glob(one)]
    files = {file for path in given for file in (path.rglob("test_*.py") if path.is_dir() else [path])}
    mentions = {file: set(words.findall(file.read_text("utf-8"))) for file in files}
    known = Counter(name for names in mentions.values() for name in names)
    weights = {name: (AROUND if name in around else 1) / count for name, count in known.items()}
    nearness = {file: sum(weights[name] for name in names) for file, names in mentions.items()}
    return [str(file) for file in sorted(files, key=lambda file: (-nearness[file], file))[:most]]


def _declared(node: ast.AST) -> set[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return {name}
        case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper():
            return {name, name.lower()}
    return set()


def _try(mutant: Mutant, copy: Path, tests: tuple[str, ...], timeout_s: float) -> tuple[str, str]:
    """Return the verdict, and which test noticed the mutant: it may have failed for another reason."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", *WITHOUT, *tests]
    changed = copy / mutant.file
    original = changed.read_bytes()
    changed.write_bytes(original[: mutant.start] + mutant.text.encode() + original[mutant.end :])
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    printed = copy / "printed"
    with (
        printed.open("w") as output,
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        ) as run,
    ):
        try:
            if run.wait(timeout_s) in (0, NO_TESTS):
                return "SURVIVED", ""
            failed = re.search(r"^(FAILED|ERROR) .*", printed.read_text("utf-8", "replace"), re.MULTILINE)
            return "noticed", f"\n  {failed.group()}" if failed else ""
        except subprocess.TimeoutExpired:
            return "timed out", ""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, 15)
            changed.write_bytes(original)


# --- operators -------------------------------------------------------------------------------------------------------


def mutants_of(area: str, file: Path, source: bytes) -> Iterator[Mutant]:
    """Yield every mutant of a file."""
    lines = source.splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    for node in _changeable(ast.parse(source)):
        start = offsets[node.lineno - 1] + node.col_offset
        end = offsets[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        was = source[start:end].decode()
        for text in _changes(node, was):
            yield Mutant(area, file, node.lineno, start, end, was, text)


def _changeable(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield the nodes whose place in the source is exact and whose change matters: no docstrings, no annotations."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.arg) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        if isinstance(tree, ast.ClassDef) and isinstance(node, ast.keyword):  # such as frozen=True
            continue
        if isinstance(node, ast.AnnAssign):
            if node.value is not None:
                yield from _changeable(ast.Expression(node.value))
            continue
        if isinstance(node, ast.expr | ast.stmt):
            yield node
        if not isinstance(node, ast.JoinedStr):
            yield from _changeable(node)


def _changes(node: ast.expr | ast.stmt, was: str) -> Iterator[str]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in FLIPPED:
            yield f"({ast.unparse(ast.Compare(node.left, [FLIPPED[type(op)]()], node.comparators))})"
        case ast.BoolOp(op=op, values=values):
            yield f"({ast.unparse(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.Expr(value=ast.Call() | ast.Await()) if not was.startswith(("log.", "super()")):
            yield "pass"
        case ast.Raise() | ast.AugAssign() | ast.Delete():
            yield "pass"
        case ast.Constant(value=bool(value)):
            yield repr(not value)
        case ast.Constant(value=int(value)):
            yield repr(value + 1)
        case ast.Constant(value=str()) | ast.JoinedStr() if SQL.search(was):
            for old, new in SQL_CHANGES.items():
                for found in re.finditer(re.escape(old), was):
                    yield was[: found.start()] + new + was[found.end() :]


if __name__ == "__main__":
    main()
