"""`stateward mci ...`: groups of VMs over many clouds, controlled as one."""

from stateward.cli.mci.commands import app

__all__ = ["app"]
