"""What a set of changes may be interesting for."""

from stateward.store.changes import Changes
from stateward.store.port import Topic

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
