"""Leases: resources reserved for a span of time, started and ended by the clock."""

from stateward.domains.leases.lifecycle import LIFECYCLES

__all__ = ["LIFECYCLES"]
