"""Random values of a type fit the type."""

from enum import Enum
from random import Random
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from stateward.testing.workload import sample_value


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Bulb(Struct):
    watts: Annotated[int, Meta(gt=4, le=60, multiple_of=5)]
    socket: Literal["E27", "E14"] = "E27"


class LampSpec(Struct, rename="camel"):
    lamp_name: Annotated[str, Meta(min_length=1, max_length=20, description="how it is called")]
    share: Annotated[float, Meta(ge=0, lt=1)]
    colour: Colour
    bulbs: Annotated[list[Bulb], Meta(min_length=1, max_length=3)]
    labels: dict[str, str] = {}
    is_on: bool = False
    note: str | None = None
    spare: Bulb | None = None
    rooms: frozenset[str] = frozenset()
    depth: Annotated[int, Meta(le=-3)] = -3


class Nest(Struct):
    inner: "Nest | None" = None
    others: list["Nest"] = []


@pytest.mark.parametrize("type_", [LampSpec, Bulb, Nest])
def test_value_fits_its_type(type_: type[Struct]) -> None:
    for seed in range(200):
        msgspec.convert(sample_value(type_, Random(seed)), type_)


def test_same_chance_gives_the_same_value() -> None:
    assert sample_value(LampSpec, Random(3)) == sample_value(LampSpec, Random(3))


def test_values_differ() -> None:
    assert len({str(sample_value(LampSpec, Random(seed))) for seed in range(50)}) > 40
