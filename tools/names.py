"""Check of names: a module name, a public class name and a word of the language each stand for one thing.

A reader who searches for a name must land in one place. Four rules, each with its exceptions here and nowhere else:
module names are unique unless they name a role that many packages have; public class names are unique; a concept has
one word, so that the words in RETIRED do not come back; a variable is named after what it holds, not `one` or `found`.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path("src/stateward")
READ = ("src/stateward", "tests", "bench", "tools", "docs", "examples")
"""Folders whose identifiers and sentences are read for retired words."""

ROLES = frozenset({
    "__init__", "__main__", "api", "apply", "claims", "cli", "client", "codec", "commands", "connections", "context",
    "demo", "driver", "errors", "examples", "guards", "handlers", "images", "keys", "lifecycle", "listing", "machines",
    "model", "names", "networks", "plugin", "port", "queries", "readers", "retention", "routes", "rules", "runtime",
    "schemas", "sdk", "service", "settings", "states", "store", "tx", "views",
})  # fmt: skip
"""Module names that say which role a module has in its package."""

SHARED_MODULES: dict[str, str] = {
    "end_hooks": "a domain's hooks at the end of operations (`Kind.on_end`)",
    "lanes": "the command, and the records of the API",
}
"""Other module names that may stand in several packages, each with the reason."""

SHARED_CLASSES: dict[str, str] = {
    "Service": "the role of the class in a domain's service.py",
    "Driver": "the role of the class in a driver's driver.py",
    "Settings": "the role of the class in a domain's settings.py",
}
"""Public class names that may stand in several modules, each with the reason."""

RETIRED: dict[str, str] = {
    "desk": "unit of work (uow)",
    "stranger": "orphan",
    "strangers": "orphans",
    "leftover": "orphan",
    "leftovers": "orphans",
    "lodging": "supervisor",
    "premises": "context",
    "workshop": "context",
    "wing": "plug-in",
    "wings": "plug-ins",
    "diary": "request log",
    "errand": "target",
    "upkeep": "reconciler",
    "temper": "fault profile",
    "sign_of_life": "heartbeat",
}
"""Words that have been replaced, with the one word that stands for the concept."""

VAGUE = frozenset({"one", "found"})
"""Names that stood for everything."""

KEPT: dict[str, frozenset[str]] = {
    "docs/ovc.md": frozenset({"strangers"}),
    "src/stateward/domains/ovc/api/views.py": frozenset({"strangers"}),
    "src/stateward/domains/ovc/model.py": frozenset({"strangers", "leftovers"}),
    "src/stateward/domains/ovc/node_privacy.py": frozenset({"strangers", "leftovers"}),
    "src/stateward/domains/ovc/orphan_scan.py": frozenset({"stranger"}),
    "tests/integration/domains/ovc/test_api.py": frozenset({"strangers"}),
    "tests/integration/domains/ovc/test_orphans.py": frozenset({"stranger"}),
    "tests/integration/cli/test_mci_commands.py": frozenset({"workshop"}),
    "docs/mci.md": frozenset({"workshop"}),
    "tests/integration/cli/test_ovc_commands.py": frozenset({"strangers"}),
}
"""Files that may have a retired word, because a published format has it: path to words."""


def _modules() -> Iterator[Path]:
    yield from sorted(SOURCE.rglob("*.py"))


def shared_modules() -> Iterator[str]:
    """Yield the module names that several packages have, without being a role."""
    places = defaultdict(list)
    for path in _modules():
        places[path.stem].append(path)
    for name, paths in sorted(places.items()):
        if len(paths) > 1 and name not in ROLES and name not in SHARED_MODULES:
            yield f"module {name!r} is there {len(paths)} times: {', '.join(map(str, paths))}"


def shared_classes() -> Iterator[str]:
    """Yield the public class names that several modules define."""
    places = defaultdict(list)
    for path in _modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path}:{node.lineno}")
    for name, found in sorted(places.items()):
        if len(found) > 1 and name not in SHARED_CLASSES:
            yield f"class {name} is there {len(found)} times: {', '.join(found)}"


def retired_words() -> Iterator[str]:
    """Yield where a retired word is used, alone or as a part of a name."""
    pattern = re.compile(
        r"(?<![a-z])(" + "|".join(sorted(RETIRED, key=len, reverse=True)) + r")(?![a-z])", re.IGNORECASE
    )
    here = Path(__file__).resolve()
    for path in (one for folder in READ for one in sorted(Path(folder).rglob("*"))):
        if path.suffix not in {".py", ".md", ".js", ".sql"} or path.resolve() == here or "decisions" in path.parts:
            continue
        kept = KEPT.get(str(path), frozenset())
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for word in {one.lower() for one in pattern.findall(line)} - kept:
                yield f"{path}:{number}: {word!r} is now called {RETIRED[word]!r}"


def vague_variables() -> Iterator[str]:
    """Yield where a variable or a parameter of the product has a name that says nothing; a field's class says more."""
    for path in _modules():
        tree = ast.parse(path.read_text())
        fields = {node.target for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)}
        bound = [(node.lineno, node.arg) for node in ast.walk(tree) if isinstance(node, ast.arg)]
        names = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and node not in fields)
        bound += [(node.lineno, node.id) for node in names if not isinstance(node.ctx, ast.Load)]
        yield from (f"{path}:{line}: {name!r} does not say what it holds" for line, name in bound if name in VAGUE)


def main() -> int:
    """Print all violations; the exit code is 1 if there is one."""
    found = [*shared_modules(), *shared_classes(), *retired_words(), *vague_variables()]
    if found:
        print(*found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
