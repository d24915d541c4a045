"""Check of memory: nothing that lives as long as its process grows with everything that it has ever seen.

A collection of a module, or one that an object is created with, that its module adds to must be one that the module
also removes from. Where something else bounds it, say what, on the same line or on the one above:
`# bounded by: REASON`, for example that the object lives no longer than a request. At the beginning of a line, the
reason holds for the whole file. Collections with a size limit and weak ones need none; a cache without a limit does.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path("src/stateward")
TEST_KIT = SOURCE / "testing"  # what it remembers lives as long as a test
REASON = re.compile(r"#.*\bbounded by: \S")
EXEMPTS_FILE = re.compile(r"^# bounded by: \S", re.MULTILINE)
QUEUES = frozenset({"Queue", "LifoQueue", "PriorityQueue", "SimpleQueue"})
COLLECTIONS = QUEUES | {"dict", "set", "list", "deque", "defaultdict", "Counter", "OrderedDict", "bytearray"}
LITERALS = (ast.Dict, ast.Set, ast.List, ast.DictComp, ast.SetComp, ast.ListComp)
ADDS = frozenset({"add", "append", "appendleft", "setdefault", "put", "put_nowait", "update", "extend", "insert"})
REMOVES = frozenset({"pop", "popitem", "popleft", "discard", "remove", "clear", "difference_update"})
TAKES = frozenset({"get", "get_nowait"})  # the removals from queues; of other collections, `get` removes nothing
CREATORS = ("__init__", "__post_init__")


class Holder(NamedTuple):
    """What a collection is assigned to."""

    name: str
    is_attribute: bool  # or a name of the module


class Collection(NamedTuple):
    """A collection, and where and by what it is created."""

    holder: Holder
    line: int
    kind: str


def main() -> None:
    """Print all violations; exits with 1 if there are any."""
    files = sorted(file for file in SOURCE.rglob("*.py") if TEST_KIT not in file.parents)
    found = [f"{file}:{line}: {fault}" for file in files for line, fault in violations(file.read_text("utf-8"))]
    print("\n".join(found) or "bounds: nothing that lives long grows without limit")
    sys.exit(bool(found))


def violations(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and fault of every collection that only grows, and of every cache without a limit."""
    if EXEMPTS_FILE.search(source):
        return
    lines, module = source.splitlines(), ast.parse(source)
    changed: dict[str, set[Holder]] = {change: set() for change in "+-?["}
    for holder, change in _changes(module):
        changed[change].add(holder)
    found = [(line, "a cache without a limit: give it a maxsize, or say what bounds it") for line in _caches(module)]
    for one in _collections(module):
        grows = one.holder in changed["+"] or (one.kind == "defaultdict" and one.holder in changed["["])
        if grows and one.holder not in changed["-"] and not (one.kind in QUEUES and one.holder in changed["?"]):
            found.append(
                (one.line, f"{one.holder.name} grows, and nothing is ever removed: bound it, or say what does")
            )
    for line, fault in sorted(set(found)):
        if not any(REASON.search(one) for one in lines[max(line - 2, 0) : line]):
            yield line, fault


def _collections(module: ast.Module) -> Iterator[Collection]:
    """Yield the collections that live as long as the module or as an object of one of its classes."""
    created: list[tuple[ast.AST, bool]] = [(one, False) for one in module.body]
    for inside in (inside for one in ast.walk(module) if isinstance(one, ast.ClassDef) for inside in one.body):
        is_creator = getattr(inside, "name", "") in CREATORS
        created += [(one, True) for one in (ast.walk(inside) if is_creator else [inside])]
    for statement, is_attribute in created:
        for target, value in _assigned(statement):
            holder, kind = _holder(target), _kind(value)
            if holder is not None and kind:
                yield Collection(Holder(holder.name, is_attribute), target.lineno, kind)


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the targets of an assignment with their values."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if not isinstance(target, ast.Tuple):
            yield target, node.value
        elif isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield from ((one, node.value) for one in target.elts)


def _kind(value: ast.expr) -> str:
    """Return which collection an expression creates; nothing for another value, and for one with a size limit."""
    if isinstance(value, LITERALS):
        return "literal"
    name = _called(value) if isinstance(value, ast.Call) else ""
    if not isinstance(value, ast.Call) or (name in QUEUES and value.args):
        return ""
    factory = next((one.value for one in value.keywords if one.arg == "default_factory"), None)
    name = name if factory is None else _called(factory)
    return name if name in COLLECTIONS and not any(one.arg in ("maxlen", "maxsize") for one in value.keywords) else ""


def _caches(module: ast.Module) -> Iterator[int]:
    """Yield the lines of caches that keep every result; a function without parameters has one."""
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and ast.unparse(node.args)]
    for one in (decorator for function in functions for decorator in function.decorator_list):
        if _called(one) == "cache" or (_called(one) == "lru_cache" and "None" in ast.unparse(one)):
            yield one.lineno


def _changes(node: ast.AST, function: str = "") -> Iterator[tuple[Holder, str]]:
    """Yield what functions do to collections, but not at their creation; see `_change`."""
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if inside and inside not in CREATORS:
            yield from ((holder, change) for one, change in _change(child) if (holder := _holder(one)) is not None)
        yield from _changes(child, inside)


def _change(node: ast.AST) -> list[tuple[ast.expr, str]]:
    """Return what a node does: `+` adds, `-` removes or replaces, `?` gets, `[` reads an item."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return [(one, "-") for one, _ in _assigned(node) if isinstance(one, ast.Attribute)]
    if isinstance(node, ast.Attribute):  # called, or passed on to be called
        change = "+" if node.attr in ADDS else "-" if node.attr in REMOVES else "?" if node.attr in TAKES else ""
        return [(node.value, change)] if change else []
    if isinstance(node, ast.Subscript):
        is_removal = isinstance(node.ctx, ast.Del) or isinstance(node.slice, ast.Slice)
        return [(node.value, "[" if isinstance(node.ctx, ast.Load) else "-" if is_removal else "+")]
    if isinstance(node, ast.AugAssign):
        return [(node.target, "+" if isinstance(node.op, ast.Add | ast.BitOr) else "-")]
    if isinstance(node, ast.Call) and node.args and _called(node) in ("heappush", "heappop"):
        return [(node.args[0], "+" if _called(node) == "heappush" else "-")]
    return [(ast.Name(name), "-") for name in node.names] if isinstance(node, ast.Global) else []


def _called(node: ast.expr) -> str:
    """Return the name of what is called, or of what a decorator names."""
    called = getattr(node, "func", node)
    called = called.value if isinstance(called, ast.Subscript) else called
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _holder(node: ast.expr) -> Holder | None:
    if isinstance(node, ast.Attribute):
        return Holder(node.attr, is_attribute=True)
    return Holder(node.id, is_attribute=False) if isinstance(node, ast.Name) else None


if __name__ == "__main__":
    main()
