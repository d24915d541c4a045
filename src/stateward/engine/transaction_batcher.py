"""Batches of items that are written in one transaction of the store."""

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeVar

from stateward.aio.batcher import Batcher
from stateward.store.errors import StoreError, StoreTimeout, UnstorableValue
from stateward.store.port import Store, Tx

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class TransactionBatcher(Batcher[Item, Answer]):
    """A batcher whose batches run in the store.

    An unreachable store is tried again. Any other error of a batch, and an `UnstorableValue`, may be the fault of a
    single item.
    """

    def is_retryable(self, error: Exception) -> bool:
        """Return whether the store may answer later."""
        return isinstance(error, StoreError) and error.retry

    def is_caused_by_item(self, error: Exception) -> bool:
        """Return whether the error is not one of the store as a whole."""
        return isinstance(error, UnstorableValue) or not isinstance(error, StoreError)

    def timeout_error(self, message: str) -> Exception:
        """Return the store's own error for an item that has timed out."""
        return StoreTimeout(message)


def transaction_batcher(
    store: Store, chance: Random, run: Callable[[Tx, Sequence[Item]], Awaitable[list[Answer]]], max_size: int = 500
) -> TransactionBatcher[Item, Answer]:
    """Return a batcher that runs each batch in a transaction."""

    async def process(items: Sequence[Item]) -> Sequence[Answer | Exception]:
        return await store.transact(lambda tx: run(tx, items))

    return TransactionBatcher(process, chance, max_size=max_size)
