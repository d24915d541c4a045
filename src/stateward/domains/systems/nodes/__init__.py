"""Nodes: hosts whose agents run the instances of systems with the backend `nodes`."""
