"""Topics as they travel in notifications."""

from stateward.store.port import EVERYTHING, Topic


def written(topics: Topic, sender: str) -> str:
    """Write topics as the payload of a notification."""
    return f"{topics.value} {sender}"


def read(payload: str) -> tuple[Topic, str]:
    """Read a payload; what cannot be read may be anything."""
    number, _, sender = payload.partition(" ")
    if not number.isdecimal() or int(number) not in range(EVERYTHING.value + 1):
        return EVERYTHING, sender
    return Topic(int(number)), sender
