"""The names of the backends, and the fields of a service that each of them can use (pure)."""

from collections.abc import Callable, Mapping

from stateward.domains.systems.definition import Service
from stateward.errors import BadInput

LOCAL, CONTAINER, NODES, SIMULATED = "local", "container", "nodes", "simulated"

CONTAINER_FIELDS = (
    "image", "pull", "registry_login", "port", "volumes", "user", "read_only", "capabilities",
)  # fmt: skip
LOCAL_FIELDS = ("folder",)
DEFAULTS = Service()


def check_backend_fields(
    backend: str, services: Mapping[str, Service], field_of: Callable[[str], str] = "services{}".format
) -> None:
    """Refuse a service that the backend cannot run, and fields that it cannot respect.

    `field_of` returns the field of a definition that has the service at a path.
    """
    unusable = {LOCAL: CONTAINER_FIELDS, CONTAINER: LOCAL_FIELDS, NODES: CONTAINER_FIELDS}.get(backend, ())
    for path, service in services.items():
        where = field_of(path)
        if backend in (LOCAL, NODES) and not service.command:
            raise BadInput(f"{where}.command", None, f"given: the backend {backend} runs commands, and no images")
        if backend == CONTAINER and service.image is None:
            raise BadInput(f"{where}.image", None, "given: the backend container runs images")
        for name in unusable:
            if getattr(service, name) != getattr(DEFAULTS, name):
                raise BadInput(f"{where}.{name}", None, f"left out: the backend {backend} cannot use it")
