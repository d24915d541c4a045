"""`stateward why`: the reasons why an object waits, with its children and its parents."""

from rich.text import Text
from rich.tree import Tree

from stateward.client.arguments import parse_ref
from stateward.client.formatting import actor_text, error_text, state_text, status_text, utc_text
from stateward.client.output import clean, results
from stateward.client.session import Session, on_server
from stateward.client.shared_options import Object
from stateward.errors import count_text
from stateward.schemas.operations import OperationView
from stateward.schemas.waiting import ParentView, WhyView

MOST = 10
"""Number of children that are listed."""


@on_server
def why(session: Session, object: Object) -> None:  # noqa: A002 - the glossary's word
    """Explain what an object waits for.

    This is its operation, queue, lane, locks and children, and then the same for its parents.

      stateward why vm/web-1
    """
    found = session.client.why(session.ns, session.find(parse_ref(object)).id)
    above = [(one, _reason(session, one)) for one in found.parents]
    if session.json:
        session.print_data([found, *(reason for _, reason in above if reason is not None)])
        return
    tree = _tree(session, found)
    results().print(tree)
    for one, reason in above:
        label = Text.assemble("part of ", (clean(one.id), "bold"), f" ({clean(one.kind)}), which is ")
        label.append_text(state_text(session.state_class, one.kind, one.state, one.state_class))
        results().print(label if reason is None else _tree(session, reason, label))


def _reason(session: Session, parent: ParentView) -> WhyView | None:
    """Return the reasons why a parent waits; None if it has no operation."""
    return None if parent.operation is None else session.client.why(session.ns, parent.id)


def _tree(session: Session, found: WhyView, label: Text | None = None) -> Tree:
    tree = Tree(label or _label(session, found))
    tree.add(_sentence(found))
    if found.operation is not None:
        tree.add(_operation(found.operation))
    _add_queue(tree, found)
    _add_lane(tree, found)
    for lock in found.locks:
        how = "waits for" if lock.waiting else "holds"
        tree.add(Text(clean(f"operation {lock.op} {how} {lock.mode} on {lock.path} of {lock.tree}")))
    _add_children(tree, found)
    return tree


def _label(session: Session, found: WhyView) -> Text:
    label = Text.assemble((clean(found.id), "bold"), f" ({clean(found.kind)}) is ")
    return label.append_text(state_text(session.state_class, found.kind, found.state, found.state_class))


def _sentence(found: WhyView) -> Text:
    return Text(clean(found.text), style="yellow" if found.reason is not None or found.error else "green")


def _operation(one: OperationView) -> Text:
    since = one.started or one.created
    words = clean(f"operation {one.id}: {one.action} by {actor_text(one.actor, one.who)}, since {utc_text(since)}, ")
    return Text(words).append_text(status_text(one.status))


def _add_queue(tree: Tree, found: WhyView) -> None:
    mine = found.operation.id if found.operation is not None else None
    ahead = []
    for one in found.queue:
        if one.op == mine:
            break
        ahead.append(one)
    if mine is not None and ahead:
        branch = tree.add(Text(f"{len(ahead)} ahead in its queue"))
        for one in ahead[:MOST]:
            branch.add(Text(clean(f"{one.action} on {one.object} ({one.op}): {one.text}")))


def _add_lane(tree: Tree, found: WhyView) -> None:
    lane = found.lane
    if lane is None or not lane.lane:
        return
    words = f"lane {lane.lane}: {lane.running} of {lane.capacity} running"
    if lane.back_off is not None:
        words += (
            f", backed off until {utc_text(lane.back_off)} (throttled {count_text(lane.throttled, 'time')} in a row)"
        )
    tree.add(Text(clean(words)))


def _add_children(tree: Tree, found: WhyView) -> None:
    if not found.children:
        return
    branch = tree.add(Text(f"waits for {count_text(len(found.children), 'child', 'children')}"))
    for one in found.children[:MOST]:
        words = Text(clean(f"{one.action} on {one.object} ({one.id}), ")).append_text(status_text(one.status))
        branch.add(words.append_text(error_text(f" {one.error}" if one.error else "")))
    if len(found.children) > MOST:
        branch.add(Text(f"and {len(found.children) - MOST} more"))
