"""Commands of the domain. The registry names them, and `stateward` imports them when one is called."""

from stateward.domains.mci.cli.commands import app

__all__ = ["app"]
