"""The WebSocket of an agent: a domain's route serves it with the hub of its agents."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

from litestar import WebSocket
from litestar.exceptions import WebSocketDisconnect

from stateward.agents.agent_hub import AgentHub
from stateward.agents.connection import AgentConnection, Disconnected
from stateward.plugin.route_options import client_address_of, grant_of, is_private
from stateward.store.errors import StoreError
from stateward.store.records import Key

log = logging.getLogger("stateward.agents")


async def serve_agent(socket: WebSocket[Any, Any, Any], hub: AgentHub, site: Key, refusal: str | None = None) -> None:
    """Serve the connection of a site's agent until it ends.

    `refusal` is the reason why its token is not accepted, empty if it is; by default, the token must name the site.
    """
    grant = grant_of(socket)
    if refusal is None:
        refusal = "" if grant.names_site(*site) else hub.wrong_site
    with suppress(WebSocketDisconnect, OSError):  # the agent may disconnect before the accept
        await socket.accept()
    if refusal:
        hub.refuse_token(grant, site)
        with suppress(WebSocketDisconnect, OSError):  # the agent may disconnect before the close, too
            await socket.close(4403, refusal)
        return
    connection = AgentConnection(socket, *site, asyncio.get_running_loop().time, grant.token)
    connection.peer, connection.is_private = client_address_of(socket), is_private(socket)
    try:
        await connection.serve(hub)
    except Disconnected:
        pass  # the hub has logged it
    except StoreError as error:
        where = f"{site.ns}/{site.id}"
        log.warning("agent of %s %s is disconnected by a store error: %s", hub.site_noun, where, error)
