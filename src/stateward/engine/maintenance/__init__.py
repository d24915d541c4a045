"""Maintenance of stored history and states: retention, the journal's horizon, state migration."""
