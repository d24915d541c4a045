"""Leases: resources reserved for a span of time, started and ended by the clock."""
