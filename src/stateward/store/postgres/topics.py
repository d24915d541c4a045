"""What a set of changes may be interesting for."""

from stateward.store.changes import Changes
from stateward.store.port import EVERYTHING, Topic

NOTHING = Topic(0)


def topics_of(changes: Changes) -> Topic:
    """Return what a commit of these changes is to be announced as."""
    topics = NOTHING
    moved = changes.new_work or changes.work or changes.work_gone or changes.children_ended
    if moved or changes.lanes or changes.groups:
        topics |= Topic.WORK
    if changes.journal:
        topics |= Topic.JOURNAL
    if changes.fences:
        topics |= Topic.FENCE
    if changes.timers or changes.timers_gone:
        topics |= Topic.TIMER
    return topics


def written(topics: Topic, sender: str) -> str:
    """Write topics as the payload of a notification."""
    return f"{topics.value} {sender}"


def read(payload: str) -> tuple[Topic, str]:
    """Read a payload; what cannot be read may be anything."""
    number, _, sender = payload.partition(" ")
    if not number.isdecimal() or int(number) not in range(EVERYTHING.value + 1):
        return EVERYTHING, sender
    return Topic(int(number)), sender
