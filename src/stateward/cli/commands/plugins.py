"""`stateward plugins`: the domains of a server, and those that could not be loaded."""

from rich.table import Table

from stateward.client.formatting import error_text, filled_table
from stateward.client.session import Session, on_server
from stateward.schemas.deployment import PluginView


@on_server
def plugins(session: Session) -> None:
    """List the domains of the server, and those that could not be loaded.

    Only administrators see which could not be loaded, and why.
    """
    session.show(session.client.plugins(), _table)


def _table(plugins: list[PluginView]) -> Table:
    rows = (
        (plugin.name, plugin.version, ", ".join(plugin.kinds), plugin.place or "", error_text(plugin.error or ""))
        for plugin in plugins
    )
    return filled_table(("domain", "version", "kinds", "place", "why it is not loaded"), rows)
