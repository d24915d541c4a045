"""Systems: trees of services, deployed and torn down under intention locks."""

from stateward.domains.systems.lifecycle import LIFECYCLES
from stateward.domains.systems.settings import SystemsSettings

COMMAND = "system"
"""The name of its commands, which are in the package `cli`; the registry looks for this name."""

SETTINGS = SystemsSettings
"""Its settings; the registry looks for this name."""

__all__ = ["COMMAND", "LIFECYCLES", "SETTINGS"]
