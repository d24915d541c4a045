"""Drivers work in threads, and a type that two threads decode for the first time at once crashes msgspec 0.22.

So their records are read by decoders that were made when a module was loaded.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import stateward.drivers

DRIVERS = Path(stateward.drivers.__file__).parent
IN_THE_LOOP = DRIVERS / "simulated"


def _late_types(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(attr="decode"), keywords=words) if any(one.arg == "type" for one in words):
                yield f"{file.relative_to(DRIVERS)}:{node.lineno}"


def test_no_driver_decodes_a_type_that_it_names_only_then() -> None:
    files = [file for file in DRIVERS.rglob("*.py") if not file.is_relative_to(IN_THE_LOOP)]
    assert len(files) > 50
    assert [place for file in files for place in _late_types(file)] == []
