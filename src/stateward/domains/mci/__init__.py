"""Multi-cloud infrastructure: groups of VMs over many providers and regions, controlled as one."""

from stateward.domains.mci.lifecycle import LIFECYCLES

__all__ = ["LIFECYCLES"]
