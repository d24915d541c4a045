"""Refuse tests that depend on the speed of the machine: a pause that decides a result, a short lease, chance, a late port.

A test that passes on an idle machine and fails on a busy one says nothing. Wait for the condition in a loop, hold the
code at a gate, or use virtual time. Where only real time shows the behavior, say why on the same line or the line
above it: `# real time: REASON`.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("tests", "examples/dns/tests")
EXCEPTION = re.compile(r"#.*\breal time: \S")
VIRTUAL = re.compile(r"virtual_?(time|clock|loop|world)|VirtualLoop|stateward_loop", re.IGNORECASE)
SHORTEST_LEASE_S = 15.0


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _number(node: ast.expr | None) -> float | None:
    return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else None


def _faults(node: ast.AST, polls: bool, virtual: bool) -> Iterator[tuple[int, str]]:
    """Yield the lines below a node that depend on real time; `polls`: a loop around it waits for a condition."""
    if isinstance(node, ast.Call):
        name = _called(node)
        if name == "sleep" and node.args and _number(node.args[0]) != 0 and not polls and not virtual:
            yield node.lineno, "sleep outside of a loop that waits for a condition"
        if name == "Random" and not node.args:
            yield node.lineno, "Random() without a seed: a failure cannot be repeated"
        if name == "free_port":
            yield node.lineno, "free_port: another process can take the port before it is bound; bind port 0"
        for keyword in node.keywords:
            if keyword.arg == "lease_s" and (_number(keyword.value) or SHORTEST_LEASE_S) < SHORTEST_LEASE_S:
                yield keyword.value.lineno, f"lease_s below {SHORTEST_LEASE_S:g}: a stall of the machine expires it"
    loop = isinstance(node, ast.While) or (isinstance(node, ast.For | ast.AsyncFor) and "pauses" in ast.dump(node.iter))
    inner = polls or loop
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        inner = False
    for child in ast.iter_child_nodes(node):
        yield from _faults(child, inner, virtual)


def faults(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and fault of all that is not marked as an exception."""
    lines = source.splitlines()
    for line, fault in _faults(ast.parse(source), False, VIRTUAL.search(source) is not None):
        if not any(EXCEPTION.search(one) for one in lines[max(line - 2, 0) : line]):
            yield line, fault


def main() -> int:
    """Print what is refused."""
    found = 0
    for folder in FOLDERS:
        for path in sorted(Path(folder).rglob("*.py")):
            for line, fault in faults(path.read_text()):
                print(f"{path}:{line}: {fault}")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
