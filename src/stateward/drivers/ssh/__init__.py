"""SSH to machines: connections with pinned host keys, and commands that run once. It needs the extra `ssh`."""
