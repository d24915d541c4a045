"""Server-sent events: the lines of a stream, put together to what was said."""

from collections.abc import Iterable, Iterator

from msgspec import Struct


class Event(Struct, frozen=True):
    """One event of a stream."""

    name: str
    data: str
    id: str | None = None


def events(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events that lines make up; an event ends with an empty line, and one cut off in the middle is none."""
    name, data, id_ = "message", list[str](), None
    for line in lines:
        if not line:
            if data:
                yield Event(name, "\n".join(data), id_)
            name, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            id_ = value
