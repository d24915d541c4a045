"""The topics of a commit, which tell a listener whether the commit concerns it.

Inside the adapters a set of topics is a plain `int`: joining two members of a `Flag` takes Python longer than SQLite
takes to write a row.
"""

from enum import Flag, auto

from stateward.store.changes import Changes


class Topic(Flag):
    """A subject that listeners of commits wait for."""

    WORK = auto()  # an operation became claimable
    JOURNAL = auto()
    FENCE = auto()  # a worker's operation was fenced
    TIMER = auto()
    PROGRESS = auto()


ALL_TOPICS = Topic.WORK | Topic.JOURNAL | Topic.FENCE | Topic.TIMER | Topic.PROGRESS

WORK, JOURNAL, FENCE, TIMER, PROGRESS = (topic.value for topic in Topic)
NO_TOPICS = 0
EVERY_TOPIC: int = ALL_TOPICS.value


def topics_of(changes: Changes) -> int:
    """Return the topics of a commit of these changes."""
    topics = NO_TOPICS
    moved = changes.work or changes.children_ended or changes.lanes or changes.groups
    # Waiters for the end of an operation wake on WORK or JOURNAL, so an end without a journal entry announces WORK.
    gone = changes.work_gone and (changes.frees_capacity or not changes.journal)
    if moved or gone or any(item.owner is None for item in changes.new_work):
        topics |= WORK
    if changes.journal:
        topics |= JOURNAL
    if changes.fences_running_work:
        topics |= FENCE
    if changes.timers or changes.timers_gone:
        topics |= TIMER
    if changes.progress:
        topics |= PROGRESS
    return topics
