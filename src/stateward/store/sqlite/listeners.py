"""Who wants to hear of commits."""

from collections.abc import Callable
from typing import TypeAlias

from stateward.store.port import Topic

Listener: TypeAlias = Callable[[Topic], None]


class Listeners:
    """The listeners of one store; they are called on the event loop."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> Callable[[], None]:
        """Add a listener and return how to remove it."""
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def tell(self, topics: int) -> None:
        """Call everybody, if there is anything to tell."""
        if topics:
            for listener in tuple(self._listeners):
                listener(Topic(topics))
