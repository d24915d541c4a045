"""Filters and pages of listings."""

from msgspec import Struct


class Selector(Struct, frozen=True):
    """A filter of objects; None matches all values. Removed objects never match."""

    ns: str
    kind: str | None = None
    parent: str | None = None
    states: tuple[str, ...] | None = None
    labels: tuple[tuple[str, str], ...] = ()
    name_like: str | None = None  # a part of the id, case-insensitive


class Page(Struct, frozen=True):
    """A page of a listing in key order: at most `limit` rows with keys greater than `after`."""

    after: str | None = None
    limit: int = 100


class JournalFilter(Struct, frozen=True):
    """A filter of journal entries; None matches all values. `since` is inclusive, `until` exclusive."""

    ns: str | None = None
    object: str | None = None
    kind: str | None = None
    op: str | None = None
    actor: str | None = None
    since: float | None = None
    until: float | None = None
