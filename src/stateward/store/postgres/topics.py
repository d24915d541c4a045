"""Topics as they travel in notifications."""

from stateward.store.port import EVERYTHING, Topic


def written(topics: Topic, sender: str) -> str:
    """Write topics as the payload of a notification."""
    return f"{topics.value} {sender}"


LONGEST = 18


def read(payload: str) -> tuple[Topic, str]:
    """Read a payload; what cannot be read may be anything."""
    number, _, sender = payload.partition(" ")
    known = len(number) <= LONGEST and number.isdecimal() and int(number) in range(EVERYTHING.value + 1)
    return (Topic(int(number)) if known else EVERYTHING), sender
