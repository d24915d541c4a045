"""Check of reads: what a domain commits depends on the transaction that commits it, not on what was read before.

Two rules. Guards, hooks and transaction functions of domains read through the unit of work, because `uow.tx` does not
know the requests of the same batch. And a function that reads committed data and then requests a change names what it
has read (`version=`), so that the commit refuses if that has changed; what doesn't need it is listed here.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

DOMAINS = Path("src/stateward/domains")

RAW = frozenset({"select", "objects", "peek", "count_objects", "count_selected"})
"""The reads of a transaction that the unit of work offers too."""

REQUESTS = frozenset({"act", "create", "group", "request", "submit", "submit_sequence"})

ALLOWED: dict[str, str] = {
    "edge/agents/controller_lease.py:_renew": "a controller creates its own record; a second creation is refused",
    "edge/cloudlet_maintenance.py:_creation": "what is read only says what to lock; the guard reads it again",
    "edge/handlers.py:_creation": "what is read only says what to create; the guard checks it again",
    "edge/service.py:_create": "what is read only says which of two requests comes first",
    "systems/nodes/node_controller.py:_retry_failed": "the lifecycle refuses a service that has not failed",
    "systems/secrets/secret_actions.py:rotate": "what is read only says whether there is a record yet",
    "systems/service.py:cancel": "the kind and the parent of an object never change",
}
"""Functions that may request a change after a read without naming it, each with the reason."""


def main() -> None:
    """Print all violations; exits with 1 if there are any."""
    found = [one for file in sorted(DOMAINS.rglob("*.py")) for one in violations(file)]
    print("\n".join(found) or "reads: decisions are made in transactions")
    sys.exit(bool(found))


def violations(file: Path) -> Iterator[str]:
    """Yield what is wrong in a module."""
    module = ast.parse(file.read_text())
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_raw(node.func):
            yield f"{file}:{node.lineno}: read through the unit of work, not with uow.tx.{node.func.attr}"
        if isinstance(node, ast.AsyncFunctionDef):
            place = f"{file.relative_to(DOMAINS).as_posix()}:{node.name}"
            if place not in ALLOWED and _requests_after_read(node):
                yield f"{file}:{node.lineno}: {node.name} reads and requests a change: pass version="


def _is_raw(call: ast.Attribute) -> bool:
    return call.attr in RAW and isinstance(call.value, ast.Attribute) and call.value.attr == "tx"


def _requests_after_read(function: ast.AsyncFunctionDef) -> bool:
    inside = list(ast.walk(function))
    reads = any(isinstance(one, ast.Attribute) and one.attr in ("reader", "record") for one in inside)
    requests = any(
        isinstance(one, ast.Call)
        and isinstance(one.func, ast.Attribute)
        and one.func.attr in REQUESTS
        and "engine" in ast.unparse(one.func.value)
        for one in inside
    )
    named = {one.arg for one in inside if isinstance(one, ast.keyword)}
    named |= {one.value for one in inside if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return reads and requests and "version" not in named


if __name__ == "__main__":
    main()
