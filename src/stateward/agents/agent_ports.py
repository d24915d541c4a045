"""The ports of an agent towards its controllers and its machine: connections, and upgrades of itself."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import MsgspecError
from websockets.exceptions import WebSocketException

from stateward.agents.messages import Upgrade

CONNECTION_ERRORS = (OSError, EOFError, WebSocketException, MsgspecError, TimeoutError)
"""The errors after which an agent connects again."""


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
