"""The HTTP API of the edge domain."""
