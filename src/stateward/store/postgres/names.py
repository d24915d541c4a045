"""Names that all processes on one database must agree on, and by which one process knows its own words."""

from hashlib import blake2b
from secrets import token_hex

from msgspec import Struct


class Names(Struct, frozen=True):
    """The numbers of the advisory locks and the channel. Each schema has its own."""

    channel: str
    sender: str
    journal_lock: int
    migration_lock: int
    groups_seed: int

    @classmethod
    def of(cls, schema: str) -> "Names":
        """Derive the names that belong to a schema."""
        locks = (_number(f"stateward/{schema}/{what}") for what in ("journal", "migration", "groups"))
        return cls(schema, token_hex(8), *locks)


def _number(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)
