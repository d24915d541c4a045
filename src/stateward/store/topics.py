"""The topics of a commit, which tell a listener whether the commit concerns it."""

from enum import Flag, auto

from stateward.store.changes import Changes


class Topic(Flag):
    """A subject that listeners of commits wait for."""

    WORK = auto()  # an operation became claimable
    JOURNAL = auto()
    FENCE = auto()  # a worker's operation was fenced
    TIMER = auto()
    PROGRESS = auto()


NO_TOPICS = Topic(0)
ALL_TOPICS = Topic.WORK | Topic.JOURNAL | Topic.FENCE | Topic.TIMER | Topic.PROGRESS


def topics_of(changes: Changes) -> Topic:
    """Return the topics of a commit of these changes."""
    topics = NO_TOPICS
    moved = changes.work or changes.children_ended or changes.lanes or changes.groups
    # Waiters for the end of an operation wake on WORK or JOURNAL, so an end without a journal entry announces WORK.
    gone = changes.work_gone and (changes.frees_capacity or not changes.journal)
    if moved or gone or any(item.owner is None for item in changes.new_work):
        topics |= Topic.WORK
    if changes.journal:
        topics |= Topic.JOURNAL
    if changes.fences_running_work:
        topics |= Topic.FENCE
    if changes.timers or changes.timers_gone:
        topics |= Topic.TIMER
    if changes.progress:
        topics |= Topic.PROGRESS
    return topics
