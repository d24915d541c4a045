"""The records of a definition. They are stored as JSON with the objects, and have the same fields in YAML."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from stateward.naming import END
from stateward.validation_texts import describe_pattern

Seconds = Annotated[float, Meta(ge=0.05, le=600)]
Few = Annotated[int, Meta(ge=0, le=1_000)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
LONGEST_WORD = 10_000
WORD = describe_pattern(r"^[^\x00]*$", "a text without a NUL")
VARIABLE = describe_pattern(
    rf"^[A-Za-z_][A-Za-z0-9_]{{0,199}}{END}", "a variable's name: letters, digits and _, at most 200, no digit first"
)
URL_PATH = describe_pattern(rf"^/[\x21-\x7e]*{END}", "a path of visible ASCII characters that begins with /")
Word = Annotated[str, Meta(min_length=1, max_length=LONGEST_WORD, pattern=WORD)]
Variable = Annotated[str, Meta(pattern=VARIABLE)]


class HealthCheck(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The health check of an instance: exactly one of HTTP, TCP and a command."""

    http: Annotated[str, Meta(pattern=URL_PATH)] | None = None  # a path that answers with 2xx or 3xx
    tcp: bool = False  # the port accepts connections
    command: tuple[Word, ...] | None = None  # exits with 0
    interval: Seconds = 1.0
    timeout: Seconds = 2.0
    failures: Annotated[int, Meta(ge=1, le=100)] = 3  # in a row, until a healthy instance counts as unhealthy


class Rollout(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The limits of a replacement: how many instances may be surplus, and how many may be missing."""

    max_surge: Few = 1
    max_unavailable: Few = 0


class Service(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A service: its command, the number of its instances, and their health check."""

    command: Annotated[tuple[Word, ...], Meta(min_length=1)]
    instances: Few = 1
    env: dict[Variable, str] = {}
    folder: Word | None = None  # the folder of its instances; None: an empty folder for each
    health: HealthCheck | None = None  # None: an instance that has run for a moment is healthy
    address: Port | None = None  # one port of this machine for all instances; 0: any that is free
    node_pool: str | None = None
    rollout: Rollout = Rollout()
    deadline: Seconds = 60.0  # without progress, after which a change of the service fails
    grace: Seconds = 10.0  # between SIGTERM and SIGKILL
    drain: Seconds = 0.3  # without new connections, before SIGTERM


class NodePool(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The nodes that services run on; each has slots for instances."""

    nodes: Annotated[int, Meta(ge=1, le=1_000)] = 1
    slots: Annotated[int, Meta(ge=1, le=1_000)] = 10


class Tree(Struct, frozen=True):
    """A definition: services by path below the path of the deploy, and node pools; None if it leaves pools alone."""

    services: Mapping[str, Service]
    pools: Mapping[str, NodePool] | None = None


def revision_of(service: Service) -> str:
    """Return the revision of a service: a hash of the fields that require new instances when they change."""
    making = replace(service, instances=1, rollout=Rollout(), deadline=60.0, address=None)
    return blake2b(msgspec.json.encode(making, order="deterministic"), digest_size=6).hexdigest()
