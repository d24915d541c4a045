"""The records that the domain stores with its objects, as JSON: specs and observations. Field names never change."""

from typing import TypeVar

import msgspec
from msgspec import Struct

from stateward.domains.systems.backends.names import LOCAL
from stateward.domains.systems.definition import NodePool, Service
from stateward.engine.privacy import Privacy
from stateward.store.records import Object

T = TypeVar("T")

SECRET_ENV = Privacy(secrets=frozenset({"env"}))
"""The values of a service's environment are for its instances alone; everybody else sees the names."""


class SystemSpec(Struct, frozen=True):
    """The backend that runs the services of a system."""

    backend: str = LOCAL


class DesiredService(Struct, frozen=True, omit_defaults=True):
    """The desired definition of a service, the deploy that set it, and the versions of its secrets at that time."""

    service: Service
    revision: str
    deploy: str
    secret_versions: dict[str, int] = {}


class DesiredTree(Struct, frozen=True):
    """A definition: services by their paths from the root; `pools` is None if the definition leaves pools alone."""

    services: dict[str, Service] = {}
    pools: dict[str, NodePool] | None = None

    def secrets(self) -> dict[str, str]:
        """Return the names of the secrets that the services use, each with the field of one use."""
        return {
            ref.secret: f"services{path}.secrets.{variable}.secret"
            for path, service in self.services.items()
            for variable, ref in service.secrets.items()
        }


class ChangeSpec(Struct, frozen=True):
    """The spec of a deploy: exactly these services at and below a path. `undoes` is the deploy that it rolls back."""

    path: str
    picture: DesiredTree
    undoes: str | None = None


class ChangeSeen(Struct, frozen=True, omit_defaults=True):
    """The observations of a deploy: the definition before it, and the user who cancelled it."""

    before: DesiredTree | None = None
    cancelled: str | None = None


class SystemLocation(Struct, frozen=True):
    """The host and folder of a system, as its backend reported them."""

    host: str = ""
    folder: str = ""


def spec_of(found: Object, wanted: type[T]) -> T | None:
    """Return the spec of an object; None if it cannot be decoded."""
    try:
        return msgspec.json.decode(found.spec, type=wanted)
    except msgspec.ValidationError:
        return None


def system_spec(found: Object) -> SystemSpec:
    """Return the spec of a system."""
    return spec_of(found, SystemSpec) or SystemSpec()


def seen_of(found: Object, wanted: type[T]) -> T:
    """Return the observations of an object."""
    return msgspec.json.decode(found.seen, type=wanted)
