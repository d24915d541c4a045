"""The port of a site: an agent creates, updates, deletes and observes things there."""

from collections.abc import Mapping
from typing import Protocol

from stateward.agents.messages import AgentOrder, Existing
from stateward.errors import StatewardError


class SiteError(StatewardError):
    """The site could not execute an order, or could not be observed."""

    why: str
    text = "{why}"


class ReportProgress(Protocol):
    """Receives lines of progress."""

    def __call__(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Report a line of progress."""


class AgentSite(Protocol):
    """The place where an agent works. Every order may be interrupted at any point, and requested again."""

    async def observe(self) -> Mapping[str, Existing]:
        """Return what exists, by name; raises `SiteError` if the site cannot be observed."""

    async def execute(self, order: AgentOrder, report_progress: ReportProgress) -> None:
        """Create, update or delete a thing; raises `SiteError` if that fails."""

    async def close(self) -> None:
        """Release resources; what exists stays as it is."""
