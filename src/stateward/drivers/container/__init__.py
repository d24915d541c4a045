"""Machines that are containers, of Docker or Podman."""

from stateward.drivers.container.driver import ContainerDriver

__all__ = ["ContainerDriver"]
