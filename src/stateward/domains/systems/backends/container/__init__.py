"""Instances that are containers of an engine: Docker or Podman."""

from stateward.domains.systems.backends.container.backend import ContainerBackend

__all__ = ["ContainerBackend"]
