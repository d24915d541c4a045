"""Sizes of flavors: a name that the agents' back end has, or processors and memory, such as 2c512m."""

import re

from stateward.domains.edge.model import FlavorSpec
from stateward.drivers.process.shell_machine import NAMED_SIZES, size_of
from stateward.errors import BadInput

_LIKE_AMOUNTS = re.compile(r"[0-9.]+c.*", re.DOTALL)
"""Sizes that are meant as amounts; all others are names."""


def check_size(flavor: FlavorSpec) -> None:
    """Refuse a size that is meant as amounts, and has none."""
    if _LIKE_AMOUNTS.fullmatch(flavor.size) and size_of(flavor.size) is None:
        sizes = f"whole processors and memory (m: MiB, g: GiB), such as 2c512m or 1c2g, or {', '.join(NAMED_SIZES)}"
        raise BadInput("size", flavor.size, f"{sizes}; the fields cores and memory take fractions and bytes")


def amounts_per_node(flavor: FlavorSpec) -> tuple[float, int]:
    """Return the cores and the bytes that a node takes: the fields, or else the size; a name alone takes nothing."""
    size = size_of(flavor.size) if _LIKE_AMOUNTS.fullmatch(flavor.size) else None
    if flavor.cores or flavor.memory or size is None:
        return flavor.cores, flavor.memory
    return float(size.processors), size.mib << 20
