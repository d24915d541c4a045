"""Carrying orders out: many rows, few steps."""

import sqlite3
from collections.abc import Sequence
from itertools import chain

from stateward.store.errors import Conflict
from stateward.store.sqlite.orders import EFFECTS, LARGEST, Order
from stateward.store.sqlite.values import Values


def install(connection: sqlite3.Connection) -> None:
    """Make the views that orders are inserted into."""
    for order in EFFECTS:
        for definition in order.definitions:
            connection.execute(definition)


def carry_out(connection: sqlite3.Connection, order: Order, rows: Sequence[Values]) -> None:
    """Write rows; an exact order that did not take effect on each of them raises `Conflict`."""
    before, done, count = connection.total_changes, 0, len(rows)
    while done < count:
        size = min(LARGEST, 1 << (count - done).bit_length() - 1)
        connection.execute(order.texts[size], list(chain.from_iterable(rows[done : done + size])))
        done += size
    changed = connection.total_changes - before
    if order.exact and changed != count:
        raise Conflict(f"{count - changed} of {count} rows were not as expected")
