"""Closing several resources: each is closed in its turn, even if one before it fails or is cancelled."""

from asyncio import CancelledError
from collections.abc import Awaitable, Callable


async def close_each(*closers: Callable[[], Awaitable[None]]) -> None:
    """Close everything, then raise the first error, if there was one; a cancellation goes before all errors."""
    failure: BaseException | None = None
    for close in closers:
        try:
            await close()
        except (Exception, CancelledError) as error:
            if failure is None or isinstance(error, CancelledError):
                failure = error
    if failure is not None:
        raise failure
