"""Commands of the domain. The registry names them, and `stateward` imports them when one is called."""

from stateward.domains.leases.cli.commands import app

__all__ = ["app"]
