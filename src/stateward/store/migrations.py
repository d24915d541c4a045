"""Schema migrations: numbered `.sql` files, one folder per database, applied in order and never edited."""

from functools import cache
from importlib.resources import files
from typing import Literal

from msgspec import Struct

from stateward.store.errors import WrongSchema

Dialect = Literal["sqlite", "postgres"]


class SchemaMigration(Struct, frozen=True):
    """One migration: its version, name and SQL."""

    version: int
    name: str
    sql: str


def migrations(dialect: Dialect) -> tuple[SchemaMigration, ...]:
    """Return all migrations of a database, oldest first."""
    return _read_migrations(dialect)


@cache  # bounded by: the sorts of databases; a store that is opened asks several times
def _read_migrations(dialect: Dialect) -> tuple[SchemaMigration, ...]:
    folder = files("stateward.store").joinpath("sql", dialect)
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return tuple(
        SchemaMigration(int(name[:3]), name[4:-4].replace("_", " "), folder.joinpath(name).read_text("utf-8"))
        for name in names
    )


def newest(dialect: Dialect) -> int:
    """Return the schema version that this code needs."""
    return migrations(dialect)[-1].version


def pending(dialect: Dialect, version: int) -> tuple[SchemaMigration, ...]:
    """Return the migrations that a database of this version lacks; raises for a version newer than the code."""
    known = newest(dialect)
    if version > known:
        raise WrongSchema(
            f"it is version {version}, and this program knows versions up to {known}; use a newer program"
        )
    return tuple(migration for migration in migrations(dialect) if migration.version > version)


def require_current(dialect: Dialect, version: int, url: str) -> None:
    """Raise `WrongSchema` if the database lacks a migration; `url` has no password, because the error shows it."""
    if pending(dialect, version):
        needed = f"it is version {version}, and this program needs version {newest(dialect)}"
        reason = needed if version else "there is none yet"
        raise WrongSchema(f"{reason}; run `stateward migrate --database '{url}'` first, or open it with `migrate=True`")
