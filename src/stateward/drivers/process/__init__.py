"""Machines that are process groups on this host."""

from stateward.drivers.process.driver import ProcessDriver

__all__ = ["ProcessDriver"]
