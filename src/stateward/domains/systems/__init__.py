"""Systems: trees of services, deployed and torn down under intention locks."""

from stateward.domains.systems.lifecycle import LIFECYCLES

__all__ = ["LIFECYCLES"]
