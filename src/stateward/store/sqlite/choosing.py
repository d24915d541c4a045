"""Filters as conditions: only what a filter names becomes part of the statement, so that each form has its own plan."""

from msgspec import Struct, field

from stateward.store.selection import JournalFilter, Selector

ESCAPES = str.maketrans({"\\": "\\\\", "%": "\\%", "_": "\\_"})


class Condition(Struct):
    """What follows WHERE, and the values for its places."""

    parts: list[str] = field(default_factory=list)
    values: list[object] = field(default_factory=list)

    def add(self, part: str, *values: object) -> None:
        """Add a condition with a `?` for each value."""
        self.parts.append(part)
        self.values += values

    def __str__(self) -> str:
        return " AND ".join(self.parts) or "true"


def source_of(selector: Selector) -> str:
    """Return the table with the index that serves a choice; left alone, SQLite takes the one that spares it a sort."""
    if selector.states == ():
        return "objects"  # nothing will be read, and an index that must be used and cannot would be an error
    if selector.parent is not None:
        return "objects INDEXED BY objects_by_parent"
    return "objects" if selector.kind is None else "objects INDEXED BY objects_by_state"


def chosen_objects(selector: Selector, state: str | None = None) -> Condition:
    """Say which objects are chosen, or which of them that are in one state."""
    chosen = Condition()
    chosen.add("ns = ? AND removed = 0", selector.ns)
    if selector.kind is not None:
        chosen.add("kind = ?", selector.kind)
    if selector.parent is not None:
        chosen.add("parent = ?", selector.parent)
    if state is not None:
        chosen.add("state = ?", state)
    elif selector.states is not None:
        chosen.add(f"state IN ({', '.join('?' * len(selector.states))})", *selector.states)
    for name, value in selector.labels:
        chosen.add("EXISTS (SELECT 1 FROM json_each(labels) l WHERE l.key = ? AND l.value = ?)", name, value)
    if selector.name_like is not None:
        chosen.add("id LIKE ? ESCAPE '\\'", f"%{selector.name_like.translate(ESCAPES)}%")
    return chosen


def chosen_lines(only: JournalFilter) -> Condition:
    """Say which lines of the journal are chosen; they are to be walked in order, unless it is about one object."""
    chosen = Condition()
    walk = "+" if only.ns is None or only.object is None else ""
    for column in ("ns", "object", "kind", "op", "actor"):
        value = getattr(only, column)
        if value is not None:
            chosen.add(f"{walk}{column} = ?", value)
    if only.since is not None:
        chosen.add("at >= ?", only.since)
    if only.until is not None:
        chosen.add("at < ?", only.until)
    return chosen
