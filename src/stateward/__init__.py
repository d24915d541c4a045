"""Stateward keeps cloud objects in known states."""

__version__ = "0.1.0"
