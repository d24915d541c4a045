"""Instances that are processes of this machine."""

from stateward.domains.systems.backends.local.backend import LocalBackend

__all__ = ["LocalBackend"]
