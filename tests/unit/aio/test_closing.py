from asyncio import CancelledError
from collections.abc import Awaitable, Callable

import pytest

from stateward.aio.supervise import close_each


class Ledger:
    """Things to close, which note their turn."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    def one(self, name: str, trouble: BaseException | None = None) -> Callable[[], Awaitable[None]]:
        async def close() -> None:
            self.closed.append(name)
            if trouble is not None:
                raise trouble

        return close


async def test_each_is_closed_and_the_first_trouble_is_told() -> None:
    ledger = Ledger()
    with pytest.raises(KeyError):
        await close_each(ledger.one("a", KeyError()), ledger.one("b", ValueError()), ledger.one("c"))
    assert ledger.closed == ["a", "b", "c"]


async def test_a_cancellation_is_not_lost_behind_another_trouble() -> None:
    ledger = Ledger()
    with pytest.raises(CancelledError):
        await close_each(ledger.one("a", KeyError()), ledger.one("b", CancelledError()), ledger.one("c"))
    assert ledger.closed == ["a", "b", "c"]
