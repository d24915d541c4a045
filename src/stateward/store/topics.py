"""What a set of changes may be interesting for.

Topics are added up as plain numbers: Python takes longer to join two flags than a database takes to write a row.
"""

from stateward.store.changes import Changes
from stateward.store.port import ALL_TOPICS, Topic

WORK, JOURNAL, FENCE, TIMER, PROGRESS = (topic.value for topic in Topic)
NOTHING = 0
ANYTHING: int = ALL_TOPICS.value


def topics_of(changes: Changes) -> int:
    """Return what a commit of these changes is to be announced as."""
    topics = NOTHING
    moved = changes.work or changes.children_ended or changes.lanes or changes.groups
    # Whoever waits for an end looks when a line or work is announced: an end that wrote no line must be heard as well.
    gone = changes.work_gone and (changes.frees_capacity or not changes.journal)
    if moved or gone or any(one.owner is None for one in changes.new_work):
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
