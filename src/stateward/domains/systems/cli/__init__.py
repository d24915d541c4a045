"""Command line of the domain; its plug-in declares it, and `stateward` loads it when it is called."""

from stateward.domains.systems.cli.commands import app

__all__ = ["app"]
