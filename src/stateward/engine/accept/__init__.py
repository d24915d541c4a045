"""Accepting requests: decision, compare-and-set, enqueueing, groups, children, idempotency keys."""
