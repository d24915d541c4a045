"""Furnishing all domains for a process. The tables alone are in the registry: who asks them needs no engine."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from stateward.domains.registry import DOMAINS
from stateward.domains.wing import Site, Wing, bare, general_kind
from stateward.engine import Kind
from stateward.lifecycle import Lifecycle

ROOM = "house"
"""The module of a domain that has its wing, as a function `wing(site)`."""


def wings(site: Site, make: Callable[[Lifecycle], Kind] = general_kind) -> list[Wing]:
    """Furnish all domains; `make` is how the kinds are made of one that has no wing of its own."""
    found: list[Wing] = []
    for domain in DOMAINS:
        room = f"{domain.__name__}.{ROOM}"
        own = import_module(room).wing(site) if find_spec(room) is not None else None
        found.append(bare(domain.LIFECYCLES, make) if own is None else own)
    return found
