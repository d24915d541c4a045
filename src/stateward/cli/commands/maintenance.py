"""`stateward heal`, `prune` and `forget`: requeue stuck work, delete old history, remove records of unknown kinds."""

import re
from typing import Annotated

import typer
from msgspec.structs import replace

from stateward.client.arguments import ObjectSelector, parse_ref
from stateward.client.formatting import filled_table, utc_text
from stateward.client.output import NO, results
from stateward.client.session import Session, on_server
from stateward.client.shared_options import Objects
from stateward.errors import BadInput, UnknownName, count_text
from stateward.schemas.deployment import PrunedView

SPAN = re.compile(r"([0-9]{1,6})([hdw])")
SECONDS = {"h": 3_600, "d": 86_400, "w": 604_800}

ListOnly = Annotated[bool, typer.Option("--dry-run", help="Only list what is stuck; exits with 1 if anything is.")]


@on_server
def heal(session: Session, dry_run: ListOnly = False) -> None:
    """Requeue the work of dead workers, and resolve overdue work, now.

    stateward heal --dry-run
    """
    if dry_run:
        _list_stuck(session)
        return
    done = session.client.heal()
    text = f"{done.freed} requeued from dead workers, {done.settled} overdue resolved or expedited."
    session.show(done, lambda _: text)


def _list_stuck(session: Session) -> None:
    stuck = session.client.stuck()
    titles = ("object", "namespace", "state", "action", "operation", "why", "deadline")
    rows = (
        (work.object, work.ns, work.state, work.action, work.op, work.why, utc_text(work.deadline)) for work in stuck
    )
    session.show(stuck, lambda shown: filled_table(titles, rows) if shown else "Nothing is stuck.")
    if stuck:
        raise typer.Exit(NO)


Older = Annotated[str, typer.Option("--older", metavar="SPAN", help="Older than this: 90d, 12w or 36h.")]
CountOnly = Annotated[bool, typer.Option("--dry-run", help="Only count what would be deleted.")]


@on_server
def prune(session: Session, older: Older, dry_run: CountOnly = False) -> None:
    """Delete the history of what ended long ago.

    This is ended operations, removed objects, journal entries and answers kept for idempotency keys.

      stateward prune --older 90d --dry-run
    """
    match = SPAN.fullmatch(older)
    seconds = int(match[1]) * SECONDS[match[2]] if match else 0
    if seconds == 0:
        raise BadInput("--older", older, "a number of hours, days or weeks, such as 36h, 90d, 12w")
    done = session.client.prune(seconds, dry_run=dry_run)
    while done.next is not None:
        more = session.client.prune(seconds, dry_run=dry_run, after=done.next)
        done = replace(
            more,
            operations=done.operations + more.operations,
            objects=done.objects + more.objects,
            lines=done.lines + more.lines,
            answers=done.answers + more.answers,
        )
    if session.json:
        session.print_data(done)
    else:
        results().print(_pruned_text(done, dry_run), markup=False, highlight=False, soft_wrap=True)


Confirmed = Annotated[str, typer.Option("--kind", metavar="KIND", help="The kind of the objects, as a confirmation.")]
EachOne = Annotated[bool, typer.Option("--all", help="All objects of the kind in the namespace.")]


@on_server
def forget(session: Session, kind: Confirmed, objects: Objects = None, every: EachOne = False) -> None:
    """Remove the records of objects whose plug-in is gone.

    The machines or services behind the records are not touched.

      stateward forget lamp-1 --kind acme.lamp
    """
    if bool(objects) == every:
        raise BadInput("object", None, "either named, or all of the kind with --all")
    ids = _ids_of_kind(session, kind) if every else [parse_ref(text).id for text in objects or ()]
    gone = [session.client.forget(session.ns, id_, kind) for id_ in ids]
    session.show(
        gone,
        lambda gone: (
            f"Removed the {'record' if len(gone) == 1 else 'records'} of {count_text(len(gone), f'{kind} object')}."
        ),
    )


def _ids_of_kind(session: Session, kind: str) -> list[str]:
    ids = [view.id for view in session.client.objects(session.ns, ObjectSelector(kind=kind))]
    if not ids:
        counts = session.client.count_objects(session.ns, ObjectSelector(), ["kind"])
        raise UnknownName("kind", kind, (row.values[0] or "" for row in counts.rows))
    return ids


def _pruned_text(done: PrunedView, dry_run: bool) -> str:
    parts = (
        count_text(done.operations, "operation"),
        count_text(done.objects, "removed object"),
        count_text(done.lines, "journal entry", "journal entries"),
    )
    verb = "Would delete" if dry_run else "Deleted"
    records = count_text(done.answers, "idempotency record")
    return f"{verb} {', '.join(parts)} and {records} from before {done.before:%Y-%m-%d %H:%MZ}."
