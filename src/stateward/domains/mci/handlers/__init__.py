"""Handlers: what a worker does for each action on MCIs, VMs, networks, security groups and keys."""
