"""Closing several things: each in its turn, should one before it fail or be cancelled."""

from asyncio import CancelledError
from collections.abc import Awaitable, Callable


async def close_each(*closers: Callable[[], Awaitable[None]]) -> None:
    """Close everything, and then raise what went wrong first, if anything did; a cancellation before all else."""
    trouble: BaseException | None = None
    for close in closers:
        try:
            await close()
        except (Exception, CancelledError) as error:
            if trouble is None or isinstance(error, CancelledError):
                trouble = error
    if trouble is not None:
        raise trouble
