"""Filters as conditions: only what a filter names becomes part of the statement, so that each form has its own plan."""

from msgspec import Struct, field

from stateward.store.selection import JournalFilter, Selector


class Condition(Struct):
    """What follows WHERE, and the values for its places."""

    parts: list[str] = field(default_factory=list)
    values: list[object] = field(default_factory=list)

    def place(self, value: object) -> str:
        """Add a value and return its place."""
        self.values.append(value)
        return f"${len(self.values)}"

    def add(self, part: str, *values: object) -> None:
        """Add a condition with a `?` for each value."""
        for value in values:
            part = part.replace("?", self.place(value), 1)
        self.parts.append(part)

    def __str__(self) -> str:
        return " AND ".join(self.parts) or "true"


def chosen_objects(selector: Selector) -> Condition:
    """Say which objects `o` are chosen."""
    chosen = Condition()
    chosen.add("o.ns = ? AND NOT o.removed", selector.ns)
    if selector.kind is not None:
        chosen.add("o.kind = ?", selector.kind)
    if selector.parent is not None:
        chosen.add("o.parent = ?", selector.parent)
    if selector.states is not None:
        chosen.add("o.state = ANY (?::text[])", list(selector.states))
    for name, value in selector.labels:
        chosen.add("o.labels::json ->> ?::text = ?", name, value)
    if selector.name_like is not None:
        chosen.add('position(lower(? COLLATE "C") IN lower(o.id)) > 0', selector.name_like)
    return chosen


def chosen_lines(only: JournalFilter) -> Condition:
    """Say which lines `j` of the journal are chosen."""
    chosen = Condition()
    for column in ("ns", "object", "kind", "op", "actor"):
        value = getattr(only, column)
        if value is not None:
            chosen.add(f"j.{column} = ?", value)
    if only.since is not None:
        chosen.add("j.at >= ?", only.since)
    if only.until is not None:
        chosen.add("j.at < ?", only.until)
    return chosen
