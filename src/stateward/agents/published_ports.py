"""Published ports of things: at which address of its host a port of each copy is reached.

A manifest may ask for any free port. Only the site knows which one it became. So the agent tells it with its reports,
and the controller keeps it with the instance.
"""

from typing import Annotated

from msgspec import Meta, Struct

from stateward.validation_texts import describe_pattern

MAX_PORTS = 200
"""The number of ports of an instance that a message tells."""

SHORT_TEXT = describe_pattern(
    r"^[^\x00-\x1f\x7f]{0,100}\Z", "a text of at most 100 characters, none a control character"
)
ShortText = Annotated[str, Meta(pattern=SHORT_TEXT)]
PublishedNumber = Annotated[int, Meta(ge=1, le=65535)]


class PublishedAddress(Struct, frozen=True, omit_defaults=True):
    """A port of a copy of a thing (PART/NUMBER), and the address and port of the host that lead to it."""

    part: ShortText
    port: PublishedNumber
    address: ShortText
    host_port: PublishedNumber
    protocol: ShortText = "tcp"

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.part}: {self.port}/{self.protocol} at {host}:{self.host_port}"


Addresses = Annotated[tuple[PublishedAddress, ...], Meta(max_length=MAX_PORTS)]
