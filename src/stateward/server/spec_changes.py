"""Changes of an object's spec, field by field, from its journal entries.

Each entry that changed the spec has the whole new one. Values are shown as their reader may see them. A secret is shown
as its mask, before and after; that it differs is told, but not how.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from stateward.engine.typed_values import MASK
from stateward.schemas.journal import FieldChange, SpecChange
from stateward.server.views import to_datetime
from stateward.store.records import JournalEntry

_NOTHING = object()
Leaves = dict[str, Any]


def spec_changes(entries: Iterable[tuple[JournalEntry, JournalEntry]]) -> Iterator[SpecChange]:
    """Yield what changed with each entry that has a spec; each comes as it is stored, and as its reader may see it.

    The first spec is no change.
    """
    before: tuple[Leaves, Leaves] | None = None
    for stored, shown in entries:
        if stored.spec is None or shown.spec is None:
            continue
        after = _leaves(msgspec.json.decode(stored.spec)), _leaves(msgspec.json.decode(shown.spec))
        fields = [] if before is None else list(_differences(before, after))
        before = after
        if fields:
            yield SpecChange(shown.seq, to_datetime(shown.at), shown.actor, shown.who, shown.event, shown.op, fields)


def _differences(before: tuple[Leaves, Leaves], after: tuple[Leaves, Leaves]) -> Iterator[FieldChange]:
    """Yield the fields whose values differ, in their order; `before` and `after` are stored and shown values."""
    for field in dict.fromkeys((*before[1], *after[1])):
        old, new = before[1].get(field, _NOTHING), after[1].get(field, _NOTHING)
        is_hidden_change = old == new == MASK and before[0].get(field) != after[0].get(field)
        if old == new and not is_hidden_change:
            continue
        how = "added" if old is _NOTHING else "removed" if new is _NOTHING else "changed"
        yield FieldChange(field, how, None if old is _NOTHING else old, None if new is _NOTHING else new)


def _leaves(value: Any, path: str = "") -> Leaves:  # noqa: ANN401 - plain JSON
    """Return the values of a spec by their paths; an empty list or object is a value of its own."""
    if isinstance(value, dict) and value:
        inner = ((f"{path}.{name}" if path else name, part) for name, part in value.items() if name != "$version")
    elif isinstance(value, list) and value:
        inner = ((f"{path}[{number}]", part) for number, part in enumerate(value))
    else:
        return {path: value}
    return {name: leaf for place, part in inner for name, leaf in _leaves(part, place).items()}
