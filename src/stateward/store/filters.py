"""How rows are chosen: filters and pages."""

from msgspec import Struct


class Selector(Struct, frozen=True):
    """Objects by what they have in common; what is None does not matter. Removed objects are never selected."""

    ns: str
    kind: str | None = None
    parent: str | None = None
    states: tuple[str, ...] | None = None
    labels: tuple[tuple[str, str], ...] = ()
    name_like: str | None = None  # part of the id, in any case


class Page(Struct, frozen=True):
    """A page of a listing in the order of the key: what follows `after`, at most `limit` rows."""

    after: str | None = None
    limit: int = 100


class JournalFilter(Struct, frozen=True):
    """Journal lines by what they are about; what is None does not matter. `until` itself is not included."""

    ns: str | None = None
    object: str | None = None
    kind: str | None = None
    op: str | None = None
    actor: str | None = None
    since: float | None = None
    until: float | None = None
