"""What is kept with the objects of this domain, as JSON: what is wanted of them, and what was seen."""

from typing import TypeVar

import msgspec
from msgspec import Struct

from stateward.domains.systems.definition import NodePool, Service
from stateward.engine.privacy import Privacy
from stateward.store.records import Object

T = TypeVar("T")

LOCAL, SIMULATED = "local", "simulated"

SECRET_ENV = Privacy(secrets=frozenset({"env"}))
"""The values of a service's environment are for its instances alone; everybody else sees the names."""


class SystemSpec(Struct, frozen=True):
    """Where the services of a system run."""

    backend: str = LOCAL


class DesiredService(Struct, frozen=True):
    """What is wanted of a service, and by which deploy."""

    service: Service
    revision: str
    deploy: str


class DesiredTree(Struct, frozen=True):
    """A definition as it was or is to be: services by their paths from the root; None: nothing is said of pools."""

    services: dict[str, Service] = {}
    pools: dict[str, NodePool] | None = None


class ChangeSpec(Struct, frozen=True):
    """What a deploy brings about: below a path, this and nothing else. `undoes` is the deploy that it rolls back."""

    path: str
    picture: DesiredTree
    undoes: str | None = None


class ChangeSeen(Struct, frozen=True, omit_defaults=True):
    """What has become of a deploy: how it was before, and who cancelled it."""

    before: DesiredTree | None = None
    cancelled: str | None = None


class SystemLocation(Struct, frozen=True):
    """Where a system lives, as its backend said."""

    host: str = ""
    folder: str = ""


def spec_of(found: Object, wanted: type[T]) -> T | None:
    """Return what is wanted of an object; None if nothing is known of it (any more)."""
    try:
        return msgspec.json.decode(found.spec, type=wanted)
    except msgspec.ValidationError:
        return None


def seen_of(found: Object, wanted: type[T]) -> T:
    """Return what was seen of an object."""
    return msgspec.json.decode(found.seen, type=wanted)
