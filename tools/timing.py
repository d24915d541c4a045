"""Check of tests: none depends on how fast the machine is, or on chance that cannot be repeated.

A pause that decides a result, a lease that a stall expires, chance without a seed, and a port that is bound long after
it was found free make a test pass on an idle machine and fail on a busy one. Wait for the condition in a loop, hold the
code at a gate, or use virtual time. Where only real time shows the behavior, say why on the same line or on the one
above: `# real time: REASON`. At the beginning of a line, it exempts the pauses and leases of the whole file.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = (Path("tests"), Path("examples/dns/tests"))
REASON = re.compile(r"#.*\breal time: \S")
EXEMPTS_FILE = re.compile(r"^# real time: \S", re.MULTILINE)
IN_VIRTUAL_TIME = re.compile(r"VirtualLoop|virtual_world|stateward\.testing|simulation\.|stateward_loop|virtual time")
SHORTEST_LEASE_S = 15.0
NEVER_S = 60.0
"""A test that sleeps so long is to be interrupted."""


def main() -> None:
    """Print all violations; exits with 1 if there are any."""
    files = [file for folder in FOLDERS for file in sorted(folder.rglob("*.py"))]
    found = [f"{file}:{line}: {fault}" for file in files for line, fault in violations(file.read_text("utf-8"))]
    print("\n".join(found) or "timing: no test depends on the speed of the machine")
    sys.exit(bool(found))


def violations(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and fault of everything that depends on real time without a reason."""
    lines = source.splitlines()
    module = ast.parse(source)
    waits = not (EXEMPTS_FILE.search(source) or IN_VIRTUAL_TIME.search(source))
    found = [*_chance_and_ports(module), *(_pauses(module, is_polling=False) if waits else ())]
    found += _short_leases(module) if waits else ()
    for line, fault in sorted(set(found)):
        if not any(REASON.search(one) for one in lines[max(line - 2, 0) : line]):
            yield line, fault


def _chance_and_ports(module: ast.Module) -> Iterator[tuple[int, str]]:
    for call in ast.walk(module):
        if isinstance(call, ast.Call) and _name(call.func) == "Random" and not call.args:
            yield call.lineno, "Random() without a seed cannot be repeated: use tests.seeds"
        if isinstance(call, ast.Call) and _name(call.func).endswith("free_port"):
            yield call.lineno, "a free port may be taken before it is bound: bind port 0, or use tests.kept_ports"


def _pauses(node: ast.AST, *, is_polling: bool) -> Iterator[tuple[int, str]]:
    """Yield the sleeps outside of loops that wait for a condition."""
    if isinstance(node, ast.Call) and not is_polling and _is_pause(node):
        yield node.lineno, "a pause decides the result: wait for the condition in a loop, or hold the code at a gate"
    is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    is_polling = not is_function and (is_polling or _polls(node))
    for child in ast.iter_child_nodes(node):
        yield from _pauses(child, is_polling=is_polling)


def _polls(node: ast.AST) -> bool:
    """Return whether a loop waits for a condition: a `while`, or a `for` that ends early when it is true."""
    ends = (ast.Return, ast.Break)
    return isinstance(node, ast.While) or (
        isinstance(node, ast.For | ast.AsyncFor) and any(isinstance(one, ends) for one in ast.walk(node))
    )


def _is_pause(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return _name(call.func) == "sleep"
    is_real = call.func.attr == "sleep" and _name(call.func.value) in ("asyncio", "time")
    return is_real and bool(call.args) and (_number(call.args[0]) or 1.0) < NEVER_S and _number(call.args[0]) != 0


def _short_leases(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the leases that are too short, as arguments, as defaults, and as constants."""
    for node in ast.walk(module):
        named: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.Call):
            named = [(keyword.arg or "", keyword.value) for keyword in node.keywords]
        elif isinstance(node, ast.arguments):
            named = [(one.arg, value) for one, value in zip(node.kwonlyargs, node.kw_defaults, strict=True)]
            given = node.args[len(node.args) - len(node.defaults) :]
            named += [(one.arg, value) for one, value in zip(given, node.defaults, strict=True)]
        elif isinstance(node, ast.Assign):
            named = [(_name(one), node.value) for one in node.targets]
        for name, value in named:
            seconds = _number(value) if name.lower() in ("lease", "lease_s") else None
            if value is not None and seconds is not None and 0 <= seconds < SHORTEST_LEASE_S:
                yield value.lineno, f"a stall expires a lease of {seconds:g} s: leave it at its default"


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _number(node: ast.expr | None) -> float | None:
    return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else None


if __name__ == "__main__":
    main()
