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
    view = session.client.why(session.ns, session.find(parse_ref(object)).id)
    above = [(parent, _reason(session, parent)) for parent in view.parents]
    if session.json:
        session.print_data([view, *(reason for _, reason in above if reason is not None)])
        return
    tree = _tree(session, view)
    results().print(tree)
    for parent, reason in above:
        label = Text.assemble("part of ", (clean(parent.id), "bold"), f" ({clean(parent.kind)}), which is ")
        label.append_text(state_text(session.state_class, parent.kind, parent.state, parent.state_class))
        results().print(label if reason is None else _tree(session, reason, label))


def _reason(session: Session, parent: ParentView) -> WhyView | None:
    """Return the reasons why a parent waits; None if it has no operation."""
    return None if parent.operation is None else session.client.why(session.ns, parent.id)


def _tree(session: Session, view: WhyView, label: Text | None = None) -> Tree:
    tree = Tree(label or _label(session, view))
    tree.add(Text(clean(view.text), style="yellow" if view.reason is not None or view.error else "green"))
    if view.operation is not None:
        tree.add(_operation(view.operation))
    _add_queue(tree, view)
    _add_lane(tree, view)
    for lock in view.locks:
        how = "waits for" if lock.waiting else "holds"
        tree.add(Text(clean(f"operation {lock.op} {how} {lock.mode} on {lock.path} of {lock.tree}")))
    _add_children(tree, view)
    return tree


def _label(session: Session, view: WhyView) -> Text:
    label = Text.assemble((clean(view.id), "bold"), f" ({clean(view.kind)}) is ")
    return label.append_text(state_text(session.state_class, view.kind, view.state, view.state_class))


def _operation(op: OperationView) -> Text:
    since = op.started or op.created
    words = clean(f"operation {op.id}: {op.action} by {actor_text(op.actor, op.who)}, since {utc_text(since)}, ")
    return Text(words).append_text(status_text(op.status))


def _add_queue(tree: Tree, view: WhyView) -> None:
    mine = view.operation.id if view.operation is not None else None
    ahead = []
    for entry in view.queue:
        if entry.op == mine:
            break
        ahead.append(entry)
    if mine is not None and ahead:
        branch = tree.add(Text(f"{len(ahead)} ahead in its queue"))
        for entry in ahead[:MOST]:
            branch.add(Text(clean(f"{entry.action} on {entry.object} ({entry.op}): {entry.text}")))


def _add_lane(tree: Tree, view: WhyView) -> None:
    lane = view.lane
    if lane is None or not lane.lane:
        return
    words = f"lane {lane.lane}: {lane.running} of {lane.capacity} running"
    if lane.back_off is not None:
        words += (
            f", backed off until {utc_text(lane.back_off)} (throttled {count_text(lane.throttled, 'time')} in a row)"
        )
    tree.add(Text(clean(words)))


def _add_children(tree: Tree, view: WhyView) -> None:
    if not view.children:
        return
    branch = tree.add(Text(f"waits for {count_text(len(view.children), 'child', 'children')}"))
    for child in view.children[:MOST]:
        words = Text(clean(f"{child.action} on {child.object} ({child.id}), ")).append_text(status_text(child.status))
        branch.add(words.append_text(error_text(f" {child.error}" if child.error else "")))
    if len(view.children) > MOST:
        branch.add(Text(f"and {len(view.children) - MOST} more"))
