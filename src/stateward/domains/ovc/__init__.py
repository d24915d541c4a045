"""OpenvCloud objects: one action at a time, durable queues, a recycle bin."""

from stateward.domains.ovc.lifecycle import LIFECYCLES

COMMAND = "ovc"
"""The name of its commands, which are in its package `cli`; the registry looks for it."""

__all__ = ["COMMAND", "LIFECYCLES"]
