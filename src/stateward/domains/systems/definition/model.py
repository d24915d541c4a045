"""The records of a definition. They are stored as JSON with the objects, with the same fields as in YAML."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from stateward.naming import END

Seconds = Annotated[float, Meta(ge=0.05, le=600)]
Few = Annotated[int, Meta(ge=0, le=1_000)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
LONGEST_WORD = 10_000
Word = Annotated[str, Meta(min_length=1, max_length=LONGEST_WORD, pattern=r"^[^\x00]*$")]
Variable = Annotated[str, Meta(pattern=rf"^[A-Za-z_][A-Za-z0-9_]{{0,199}}{END}")]


class HealthCheck(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How an instance shows that it can work: by exactly one of HTTP, TCP and a command."""

    http: Annotated[str, Meta(pattern=rf"^/[\x21-\x7e]*{END}")] | None = None  # a path that answers with 2xx or 3xx
    tcp: bool = False  # its port takes connections
    command: tuple[Word, ...] | None = None  # ends with 0
    interval: Seconds = 1.0
    timeout: Seconds = 2.0
    failures: Annotated[int, Meta(ge=1, le=100)] = 3  # in a row, before one that was healthy is not


class Rollout(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How many instances may be beyond the wanted number, and how many may be missing, while they are replaced."""

    max_surge: Few = 1
    max_unavailable: Few = 0


class Service(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A service: what runs, how often, and how it is seen to be well."""

    command: Annotated[tuple[Word, ...], Meta(min_length=1)]
    instances: Few = 1
    env: dict[Variable, str] = {}
    folder: Word | None = None  # where it runs; its own empty folder if None
    health: HealthCheck | None = None  # without one, whatever has run for a moment is well
    address: Port | None = None  # one port of this machine for all instances; 0: any that is free
    node_pool: str | None = None
    rollout: Rollout = Rollout()
    deadline: Seconds = 60.0  # without progress, a change of the service has failed
    grace: Seconds = 10.0  # between being asked to end and being killed
    drain: Seconds = 0.3  # between getting no new connections and being asked to end


class NodePool(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Nodes that services run on: each has room for so many instances."""

    nodes: Annotated[int, Meta(ge=1, le=1_000)] = 1
    slots: Annotated[int, Meta(ge=1, le=1_000)] = 10


class Tree(Struct, frozen=True):
    """A definition: services by their paths below where it is put, and node pools; None if it says nothing of them."""

    services: Mapping[str, Service]
    pools: Mapping[str, NodePool] | None = None


def revision_of(service: Service) -> str:
    """Return what instances of the same making have in common; their number and what stands before them is not it."""
    making = replace(service, instances=1, rollout=Rollout(), deadline=60.0, address=None)
    return blake2b(msgspec.json.encode(making, order="deterministic"), digest_size=6).hexdigest()
