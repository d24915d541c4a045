"""Dry runs: a call that would submit requests gets their plan instead, and nothing is written.

The service of a domain checks what it is given, and then builds requests for the engine. Only the service knows which
ones. Within `dry_run()`, the engine decides the first requests that it gets, as `Engine.plan` does, and raises the
verdicts as `DryRunEnded`, with the preview that the caller makes of them. So the checks of a dry run are the checks of
the call itself. Only calls that write nothing before they submit may run like this; their routes say so.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn

from stateward.engine.requests import Accepted, Request

MakePreview = Callable[[Request, Accepted], Awaitable[Any]]
"""Returns the effects of a planned request, the last one of a call."""

_MAKE_PREVIEW: ContextVar[MakePreview | None] = ContextVar("make_preview", default=None)


class DryRunEnded(Exception):
    """The requests of a dry run would be accepted; `accepted` is what would be stored."""

    def __init__(self, accepted: Sequence[Accepted], preview: Any) -> None:  # noqa: ANN401 - what the caller makes
        super().__init__("nothing was written: this was a dry run")
        self.accepted, self.preview = accepted, preview


@contextmanager
def dry_run(make_preview: MakePreview) -> Iterator[None]:
    """Let the engine only plan what the block submits."""
    before = _MAKE_PREVIEW.set(make_preview)
    try:
        yield
    finally:
        _MAKE_PREVIEW.reset(before)


def is_dry_run() -> bool:
    """Return whether the engine may only plan now."""
    return _MAKE_PREVIEW.get() is not None


async def end_dry_run(requests: Sequence[Request], accepted: Sequence[Accepted]) -> NoReturn:
    """Raise the plan of requests that would be accepted."""
    make_preview = _MAKE_PREVIEW.get()
    assert make_preview is not None
    raise DryRunEnded(accepted, await make_preview(requests[-1], accepted[-1]))
