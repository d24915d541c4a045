"""Stateward keeps cloud objects in known states."""

__version__ = "0.2.0"
