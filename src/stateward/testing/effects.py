"""A ledger of effects: what handlers did outside of the store, such as calls that changed something at a provider.

A process that dies after a call, and before it has stored that, makes the call again. Whether this does harm is up to
the provider and to the handler, and only the outside shows it. So a fake provider writes each change to this ledger,
under the idempotency key of the request. The ledger outlives the processes; a key may have one effect.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from stateward.testing.handler_calls import CodeLine, current_lines


class Effect(Struct, frozen=True):
    """An effect: its key, the value that the provider answered with, and the handler's lines that waited for it."""

    key: str
    value: Any
    lines: tuple[CodeLine, ...]


class Effects:
    """The effects so far, in order. `apply` and `apply_once` wait before and after the effect: calls can die there."""

    def __init__(self, on_effect: Callable[[Effect, Effect | None], None] = lambda *_: None) -> None:
        self._effects: list[Effect] = []
        self._on_effect = on_effect

    async def apply(self, key: str, value: Any = None) -> Any:
        """Have an effect, as at a provider without idempotency keys: a second call has a second effect."""
        await asyncio.sleep(0)
        self._record(key, value)
        await asyncio.sleep(0)
        return value

    async def apply_once(self, key: str, value: Any = None) -> Any:
        """Have an effect, as at a provider with idempotency keys: a second call returns the value of the first."""
        await asyncio.sleep(0)
        if key not in self:
            self._record(key, value)
        await asyncio.sleep(0)
        return self[key]

    def count(self, key: str) -> int:
        """Return how many effects a key has had."""
        return sum(effect.key == key for effect in self._effects)

    def _record(self, key: str, value: Any) -> None:
        first, effect = self._find(key), Effect(key, value, current_lines())
        self._effects.append(effect)
        self._on_effect(effect, first)

    def _find(self, key: str) -> Effect | None:
        return next((effect for effect in self._effects if effect.key == key), None)

    def __contains__(self, key: str) -> bool:
        return self._find(key) is not None

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key's first effect."""
        effect = self._find(key)
        if effect is None:
            raise KeyError(key)
        return effect.value

    def __iter__(self) -> Iterator[str]:
        """Walk over the keys, in the order of their effects."""
        return (effect.key for effect in self._effects)

    def __len__(self) -> int:
        return len(self._effects)
