"""Which server: a URL may name several hosts, of which one can be written to, and not always the same.

The driver tries them in their order, all within one limit of time. So a host that swallows what is sent to it, as one
behind a broken network does, would keep everybody from those behind it. Here each has its own share of the time, and
the one that answered last is asked first.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

READ_ONLY = "default_transaction_read_only"


class Host(Struct, frozen=True):
    """One of the hosts of a URL, as a URL of its own."""

    name: str
    dsn: str


def hosts(dsn: str) -> tuple[Host, ...]:
    """Return the hosts that a URL names before its path; the driver sees to those that are named elsewhere."""
    parts = urlsplit(dsn)
    login, at, names = parts.netloc.rpartition("@")
    if "," not in names:
        return (Host(names, dsn),)
    return tuple(Host(name, parts._replace(netloc=f"{login}{at}{name}").geturl()) for name in names.split(","))


def wanted(dsn: str, settings: Mapping[str, str]) -> str | None:
    """Return what a server has to be for a connection with these settings, where that is not what the URL says.

    A connection of ours that only reads sees a server that is read-only, and would find none that can be written to.
    """
    asked = parse_qs(urlsplit(dsn).query).get("target_session_attrs")
    return "primary" if asked == ["read-write"] and settings.get(READ_ONLY) == "on" else None


class Favourite:
    """Remembers who answered last."""

    def __init__(self) -> None:
        self._name = ""

    def first(self, found: Sequence[Host]) -> list[Host]:
        """Return hosts in the order in which they are to be asked."""
        return sorted(found, key=lambda one: one.name != self._name)

    def answered(self, host: Host) -> None:
        """Take note of who answered."""
        self._name = host.name
