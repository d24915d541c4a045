"""Edge: clusters, apps and cloudlets, worked by remote agents."""

from stateward.domains.edge.lifecycle import LIFECYCLES

__all__ = ["LIFECYCLES"]
