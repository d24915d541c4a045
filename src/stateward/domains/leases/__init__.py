"""Leases: resources reserved for a span of time, started and ended by the clock."""

from stateward.domains.leases.lifecycle import LIFECYCLES
from stateward.domains.leases.settings import Settings

COMMAND = "lease"
"""The name of its commands, which are in its package `cli`; the registry looks for it."""

SETTINGS = Settings
"""What can be set; the registry looks for it."""

__all__ = ["COMMAND", "LIFECYCLES", "SETTINGS"]
