"""Instances that are containers of an engine: Docker or Podman."""

from stateward.domains.systems.backends.container.container_backend import ContainerBackend

__all__ = ["ContainerBackend"]
