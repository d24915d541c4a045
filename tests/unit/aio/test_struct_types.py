"""Struct classes are prepared before an engine's threads decode the first values of them."""

import subprocess
import sys

import msgspec

from stateward.engine import Engine
from stateward.store import open_store

PROGRAM = """
import sys
from threading import Barrier, Thread

import msgspec

from stateward.aio.struct_types import prepare_struct_types

sys.setswitchinterval(1e-6)


def first_values(whole, barrier):
    barrier.wait()
    msgspec.json.decode(b'{"p1": {"f1": {"a": [1]}}, "p9": {}}', type=whole)


for _ in range(100):
    fields = [(f"f{number}", dict[str, list[int | str]], {}) for number in range(10)]
    parts = [(f"p{number}", msgspec.defstruct("Part", fields) | None, None) for number in range(10)]
    whole, barrier = msgspec.defstruct("Whole", parts), Barrier(4)
    if "prepared" in sys.argv:
        prepare_struct_types()
    threads = [Thread(target=first_values, args=(whole, barrier)) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
"""

evaluations: list[None] = []


def evaluated() -> type[int]:
    """Return the type of a field; called when msgspec reads the annotations of its class."""
    evaluations.append(None)
    return int


async def test_an_engine_prepares_them_all_before_its_store_has_threads() -> None:
    probe = msgspec.defstruct("Probe", [("x", "evaluated()")], module=__name__)
    unfit = msgspec.defstruct("Unfit", [("x", "nobody_knows_this")], module=__name__)
    async with Engine(open_store(":memory:"), []):
        assert len(evaluations) == 1
        assert msgspec.json.decode(b'{"x": 1}', type=probe) == probe(x=1)
    assert len(evaluations) == 1
    del unfit


def test_first_values_in_several_threads_crash_nothing() -> None:
    subprocess.run([sys.executable, "-X", "faulthandler", "-c", PROGRAM, "prepared"], check=True)
