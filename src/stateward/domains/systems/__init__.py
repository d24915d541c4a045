"""Systems: trees of services, deployed and torn down under intention locks."""

from stateward.domains.systems.lifecycle import LIFECYCLES
from stateward.domains.systems.settings import SystemsSettings

COMMAND = "system"
"""The name of its commands, which are in its package `cli`; the registry looks for it."""

SETTINGS = SystemsSettings
"""What can be set; the registry looks for it."""

__all__ = ["COMMAND", "LIFECYCLES", "SETTINGS"]
