"""OpenvCloud objects: one action at a time, durable queues, a recycle bin."""

from stateward.domains.ovc.lifecycle import LIFECYCLES

__all__ = ["LIFECYCLES"]
