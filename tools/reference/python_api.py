"""The pages of the Python packages, from their docstrings and from the comments behind fields and constants.

The source is read, and never imported: so a package that imports its names when they are used is read like all others.
A public name is one of the package's `__all__`.
"""

import ast
import inspect
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from tools.reference.markdown import code, joined, table

PACKAGES = (
    "stateward.plugin",
    "stateward.lifecycle",
    "stateward.engine",
    "stateward.blocking",
    "stateward.testing",
    "stateward.compat",
)
PRIVATE = "_"
WIDTH = 100

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Assignment: TypeAlias = ast.Assign | ast.AnnAssign


class PublicName(Struct, frozen=True):
    """A public name: the module that declares it, and the statement that does."""

    name: str
    module: str
    node: ast.ClassDef | Function | Assignment

    @property
    def about(self) -> str:
        """What its docstring or its comment says."""
        return _about(self.module, self.node)


def pages() -> Iterator[tuple[str, str]]:
    """Yield a page for each package: its last name, and its text."""
    for package in PACKAGES:
        found = list(public_names(package))
        own = [one for one in found if home(one) == package]
        constants = [one for one in own if isinstance(one.node, ast.Assign | ast.AnnAssign)]
        yield (
            _page(package),
            joined(
                f"# {package}",
                ast.get_docstring(_tree(package)) or "",
                table(("name", "meaning"), [(_link(one), _first_sentence(one)) for one in found if one not in own]),
                table(("constant", "value", "meaning"), [_constant(one) for one in constants]),
                *(_section(package, one) for one in own if one not in constants),
            ),
        )


def public_names(package: str) -> Iterator[PublicName]:
    """Yield the public names of a package, in the order of `__all__`."""
    yield from (_declared(package, name) for name in _exported(package))


def undocumented(package: str) -> list[str]:
    """Return the public names and the public methods of a package that no docstring or comment describes."""
    found = list(public_names(package))
    missing = [one.name for one in found if not one.about]
    return missing + [
        f"{one.name}.{method.name}"
        for one in found
        if isinstance(one.node, ast.ClassDef)
        for method in _methods(one.node)
        if not ast.get_docstring(method)
    ]


def home(one: PublicName) -> str:
    """Return the package on whose page a name is described; the others link to it."""
    found = [package for package in PACKAGES if one.name in _exported(package)]
    return next((package for package in found if f"{one.module}.".startswith(f"{package}.")), found[0])


# --- the source ------------------------------------------------------------------------------------------------------


@cache
def _source(module: str) -> str:
    found = find_spec(module)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(module)
    return Path(found.origin).read_text("utf-8")


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_source(module))


@cache
def _exported(package: str) -> tuple[str, ...]:
    assigned = [one for one in _tree(package).body if isinstance(one, ast.Assign) and _targets(one) == ["__all__"]]
    return tuple(name for one in assigned for name in ast.literal_eval(one.value))


def _declared(module: str, name: str) -> PublicName:
    """Find the statement that declares a name, through all modules that only import it."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module and name in [one.asname or one.name for one in node.names]:
            return _declared(node.module, name)
    for statement in _tree(module).body:
        if isinstance(statement, ast.ClassDef | Function) and statement.name == name and not _is(statement, "overload"):
            return PublicName(name, module, statement)
        if isinstance(statement, ast.Assign | ast.AnnAssign) and name in _targets(statement):
            return PublicName(name, module, statement)
    raise LookupError(f"{module} does not declare {name}")


def _targets(node: Assignment) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]


def _about(module: str, node: ast.AST) -> str:
    """Return a docstring, the text below an assignment, or the comment behind it."""
    if isinstance(node, ast.ClassDef | Function):
        return ast.get_docstring(node) or ""
    for before, after in zip(_tree(module).body, _tree(module).body[1:], strict=False):
        if before is node and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            return inspect.cleandoc(str(after.value.value))
    assert isinstance(node, ast.stmt)
    _, _, comment = _source(module).splitlines()[(node.end_lineno or 1) - 1][node.end_col_offset :].partition("# ")
    return "" if comment.startswith("noqa") else comment.strip()


def _methods(node: ast.ClassDef) -> list[Function]:
    functions = [one for one in node.body if isinstance(one, Function) and not _is(one, "overload")]
    return [one for one in functions if not one.name.startswith(PRIVATE)]


def _is(node: ast.ClassDef | Function, decorator: str) -> bool:
    return any(ast.unparse(one) == decorator for one in node.decorator_list)


# --- Markdown --------------------------------------------------------------------------------------------------------


def _page(package: str) -> str:
    return package.rpartition(".")[2]


def _target(package: str, name: str) -> str:
    return f"python-{_page(package)}-{name}"


def _link(one: PublicName) -> str:
    return f"[{code(one.name)}](#{_target(home(one), one.name)})"


def _first_sentence(one: PublicName) -> str:
    return one.about.partition("\n\n")[0]


def _constant(one: PublicName) -> tuple[str, str, str]:
    value = one.node.value  # type: ignore[union-attr]
    return code(one.name), code(ast.unparse(value)) if isinstance(value, ast.Constant) else "", one.about


def _section(package: str, one: PublicName) -> str:
    head = joined(f"({_target(package, one.name)})=\n## {one.name}")
    if isinstance(one.node, ast.ClassDef):
        return joined(head, _class(one, one.node))
    assert isinstance(one.node, Function)
    return joined(head, _calls(_tree(one.module), one.node), one.about)


def _class(one: PublicName, node: ast.ClassDef) -> str:
    constructors = [method for method in node.body if isinstance(method, ast.FunctionDef) and method.name == "__init__"]
    own_fields = [field for field in node.body if isinstance(field, ast.Assign | ast.AnnAssign)]
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    return joined(
        _fenced(f"class {node.name}({bases})" if bases else f"class {node.name}"),
        one.about,
        *(_fenced(_signature(method, name=node.name)) for method in constructors),
        table(("field", "type", "default", "meaning"), _fields(one.module, own_fields)),
        *(_method(node, method) for method in _methods(node)),
    )


def _fields(module: str, fields: Iterable[Assignment]) -> Iterator[Sequence[str]]:
    for field in fields:
        for name in _targets(field):
            if not name.startswith(PRIVATE):
                annotation = code(ast.unparse(field.annotation)) if isinstance(field, ast.AnnAssign) else ""
                value = code(ast.unparse(field.value)) if field.value is not None else ""
                yield code(name), annotation.replace("'", ""), value, _about(module, field)


def _method(node: ast.ClassDef, method: Function) -> str:
    is_property = _is(method, "property") and method.returns is not None
    shown = _fenced(f"{method.name}: {ast.unparse(method.returns)}") if is_property else _calls(node, method)  # type: ignore[arg-type]
    return joined(f"### {node.name}.{method.name}", shown, ast.get_docstring(method) or "")


def _calls(scope: ast.Module | ast.ClassDef, function: Function) -> str:
    """Return the ways to call a function: its overloads, or its one signature."""
    same = [one for one in scope.body if isinstance(one, Function) and one.name == function.name]
    return _fenced("\n".join(_signature(one) for one in same if _is(one, "overload") or len(same) == 1))


def _signature(function: Function, name: str = "") -> str:
    """Return how a function is called: in one line, or with a line for each parameter."""
    given = function.args
    for one in (given.posonlyargs, given.args):
        one[:] = [each for each in one if each.arg not in ("self", "cls")]
    returns = f" -> {ast.unparse(function.returns)}" if function.returns and not name else ""
    before = "" if name else "async def " if isinstance(function, ast.AsyncFunctionDef) else "def "
    line = f"{before}{name or function.name}({ast.unparse(given)}){returns}"
    if len(line) <= WIDTH:
        return line
    parameters = [one.strip() for one in _split(ast.unparse(given))]
    return f"{before}{name or function.name}(\n" + "".join(f"    {one},\n" for one in parameters) + f"){returns}"


def _split(parameters: str) -> Iterator[str]:
    """Split a list of parameters at its commas, but not at those within brackets."""
    depth, begin = 0, 0
    for place, character in enumerate(parameters):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            yield parameters[begin:place]
            begin = place + 1
    yield parameters[begin:]


def _fenced(text: str) -> str:
    return f"```python\n{text}\n```"
