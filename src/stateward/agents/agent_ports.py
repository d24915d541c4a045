"""The ports of an agent towards its controllers and its machine: connections, and upgrades of itself."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import MsgspecError
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from stateward.agents.messages import Upgrade

CONNECTION_ERRORS = (OSError, EOFError, WebSocketException, MsgspecError, TimeoutError)
"""The errors after which an agent connects again."""

FORBIDDEN_MEANS = "the token is unknown, has expired or was revoked, or is not one for agents (--role agent)"
"""What an HTTP status of 401 or 403 means; a server does not tell which of these it is."""


def describe_connection_error(error: BaseException) -> str:
    """Return why there is no connection, as the controller told it where it did."""
    if isinstance(error, InvalidStatus):
        status = error.response.status_code
        means = f": {FORBIDDEN_MEANS}" if status in (401, 403) else ""
        return f"the controller refuses the connection with HTTP status {status}{means}"
    if isinstance(error, ConnectionClosed) and error.rcvd is not None and error.rcvd.reason:
        return f"the controller has closed the connection: {error.rcvd.reason}"
    return str(error) or type(error).__name__


class Dismissed(Exception):
    """The controller has told this agent to end."""


class AgentSocket(Protocol):
    """The client side of a WebSocket."""

    async def send(self, message: bytes, *, text: bool | None = None) -> None:
        """Send a message."""

    async def recv(self) -> str | bytes:
        """Return the next message."""

    async def close(self) -> None:
        """Close the connection."""


class Dialer(Protocol):
    """Connects to controllers."""

    async def dial(self) -> AgentSocket:
        """Connect to the next controller."""

    def reset_backoff(self) -> None:
        """Reset the backoff, after a connection has been stable."""

    @property
    def retry_delay_s(self) -> float:
        """Seconds to wait before the next attempt."""


class UpgradeHandler(Protocol):
    """Upgrades an agent on its machine."""

    async def upgrade(self, order: Upgrade, report: Callable[[str, str], Awaitable[None]]) -> None:
        """Start the successor and watch it; `report` is called with each event of the upgrade, and its error."""

    async def take_over(self) -> None:
        """End the predecessor, and serve from now on."""

    @property
    def successor_of(self) -> int:
        """The upgrade for which this agent was started as a successor; 0 once it serves."""
