"""The fields of a service that each backend can use (pure)."""

from collections.abc import Callable, Mapping

from stateward.domains.systems.backends.names import CONTAINER, LOCAL, NODES
from stateward.domains.systems.definition import Service
from stateward.errors import BadInput

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
    for path, service in services.items():
        where, is_image = field_of(path), service.image is not None
        of_nodes = LOCAL_FIELDS if is_image else CONTAINER_FIELDS
        unusable = {LOCAL: CONTAINER_FIELDS, CONTAINER: LOCAL_FIELDS, NODES: of_nodes}.get(backend, ())
        if backend == LOCAL and not service.command:
            raise BadInput(f"{where}.command", None, "given: the backend local runs commands, and no images")
        if backend == NODES and not service.command and not is_image:
            raise BadInput(f"{where}.command", None, "given, or an image")
        if backend == CONTAINER and service.image is None:
            raise BadInput(f"{where}.image", None, "given: the backend container runs images")
        for name in unusable:
            if getattr(service, name) != getattr(DEFAULTS, name):
                of = f" for {'an image' if is_image else 'a command'}" if backend == NODES else ""
                raise BadInput(f"{where}.{name}", None, f"left out: the backend {backend} cannot use it{of}")
