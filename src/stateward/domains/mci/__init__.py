"""Multi-cloud infrastructure: groups of VMs over many providers and regions, controlled as one."""

from stateward.domains.mci.lifecycle import LIFECYCLES

COMMAND = "mci"
"""The name of its commands, which are in its package `cli`; the registry looks for it."""

__all__ = ["COMMAND", "LIFECYCLES"]
