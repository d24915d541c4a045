"""The names of the backends; the settings need them, and every command that looks for plug-ins imports the settings."""

LOCAL, CONTAINER, NODES, SIMULATED = "local", "container", "nodes", "simulated"
