"""Random values of a type: for specs and arguments in simulations."""

from math import ceil, floor
from random import Random
from typing import Any

from msgspec import inspect

DEEPEST = 4
"""How deep values are nested; below that, collections are empty."""


def sample_value(type_: Any, chance: Random) -> Any:
    """Return a random JSON value that fits a type; a text with a pattern is beyond it."""
    return _sample(inspect.type_info(type_), chance, 0)


def _sample(info: inspect.Type, chance: Random, depth: int) -> Any:
    match info:
        case inspect.StructType():
            named = [field for field in info.fields if field.required or (depth < DEEPEST and chance.random() < 0.5)]
            return {field.encode_name: _sample(field.type, chance, depth + 1) for field in named}
        case inspect.Metadata():
            return _sample(info.type, chance, depth)
        case inspect.UnionType():
            return _sample(chance.choice(info.types), chance, depth)
        case inspect.LiteralType():
            return chance.choice(info.values)
        case inspect.EnumType():
            return chance.choice([member.value for member in info.cls])
        case inspect.BoolType():
            return chance.random() < 0.5
        case inspect.IntType() | inspect.FloatType():
            return _sample_number(info, chance)
        case inspect.StrType():
            least = info.min_length or 0
            return "".join(chance.choices("abcdefgh", k=chance.randint(least, min(least + 8, info.max_length or 99))))
        case inspect.ListType() | inspect.SetType() | inspect.FrozenSetType() | inspect.VarTupleType():
            least = info.min_length or 0
            most = least if depth >= DEEPEST else min(least + 2, info.max_length or 99)
            return [_sample(info.item_type, chance, depth + 1) for _ in range(chance.randint(least, most))]
        case inspect.DictType():
            number = 0 if depth >= DEEPEST else chance.randrange(3)
            keys = (_sample(info.key_type, chance, depth + 1) for _ in range(number))
            return {key: _sample(info.value_type, chance, depth + 1) for key in keys}
        case _:
            return None


def _sample_number(info: inspect.IntType | inspect.FloatType, chance: Random) -> int | float:
    is_whole = isinstance(info, inspect.IntType)
    step = info.multiple_of or (1 if is_whole else None)
    least = info.ge if info.ge is not None else info.gt
    most = info.le if info.le is not None else info.lt
    low = least if least is not None else min(0, most if most is not None else 0)
    high = most if most is not None else low + 20 * (step or 1)
    if step is None:
        return low + (high - low) * (0.01 + 0.98 * chance.random())  # not the bounds, which may be excluded
    first = floor(low / step) + 1 if info.gt is not None else ceil(low / step)
    last = ceil(high / step) - 1 if info.lt is not None else floor(high / step)
    value = step * chance.randint(first, max(first, last))
    return int(value) if is_whole else float(value)
