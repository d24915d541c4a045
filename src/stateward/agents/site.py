"""What an agent works on: a site, where things are made, changed and removed, and can be looked at."""

from collections.abc import Mapping
from typing import Protocol

from stateward.agents.messages import AgentOrder, Existing
from stateward.errors import StatewardError


class SiteError(StatewardError):
    """The site could not do it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return self.why


class ReportProgress(Protocol):
    """Is told how far some work has come."""

    def __call__(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Take a line of progress."""


class AgentSite(Protocol):
    """Where an agent works. Whatever it does can be interrupted at any point, and asked for again."""

    async def observe(self) -> Mapping[str, Existing]:
        """Return what exists, by name; raises a `SiteError` where that cannot be seen."""

    async def execute(self, order: AgentOrder, report_progress: ReportProgress) -> None:
        """Make, change or remove a thing; raises a `SiteError` where that cannot be done."""

    async def close(self) -> None:
        """Let go; what exists stays as it is."""
