"""Ending operations: claim reports, completion, cancellation."""
