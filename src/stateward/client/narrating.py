"""What a single operation says of its progress, while it says it."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from stateward.client.errors import Trouble
from stateward.client.events import Event, events
from stateward.schemas.operations import OperationView, ProgressView

if TYPE_CHECKING:
    from stateward.client.api import Client

Said = Callable[[str, int | None, int | None], None]
END = "end"
LONGEST_PATIENCE = 3600.0  # what a socket can be told to wait has an end


def narrate(
    client: "Client",
    operation: OperationView,
    said: Said,
    timeout: float | None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Pass on what an operation says until it ends, or the time is over; how it ended is for others to see.

    This is only for somebody to look at: where the stream breaks or cannot be had, the waiting goes on without it.
    """
    until = None if timeout is None else clock() + timeout
    try:
        for event in _events(client, operation, until, clock):
            if event.name == END:
                return
            words = msgspec.json.decode(event.data, type=ProgressView)
            said(words.text, words.done, words.total)
    except (Trouble, msgspec.MsgspecError):
        return


def _events(
    client: "Client", operation: OperationView, until: float | None, clock: Callable[[], float]
) -> Iterator[Event]:
    """Yield events until the time is over.

    A stream is given up when it is silent for as long as there is time left. Its signs of life would make that longer
    each time; so with a time set, the stream is opened anew after each.
    """
    last: str | None = None
    while until is None or clock() < until:
        patience = None if until is None else min(until - clock(), LONGEST_PATIENCE)
        with client.events(operation.ns, operation.id, last, patience) as lines:
            for event in events(lines if until is None else _to_sign_of_life(lines)):
                last = event.id or last
                yield event
        if until is None:
            return


def _to_sign_of_life(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line.startswith(":"):
            return
        yield line
