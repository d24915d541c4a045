"""Edge: clusters, apps and cloudlets, worked by remote agents."""

from stateward.domains.edge.lifecycle import LIFECYCLES

COMMAND = "edge"
"""The name of its commands, which are in its package `cli`; the registry looks for it."""

__all__ = ["COMMAND", "LIFECYCLES"]
