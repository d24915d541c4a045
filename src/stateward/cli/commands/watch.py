"""`stateward watch` and `stateward history`: the journal as it grows, and of one object."""

from typing import Annotated

import typer

from stateward.cli.commands.kind_options import OnlyKind
from stateward.client import formatting
from stateward.client.arguments import parse_ref
from stateward.client.journal_stream import JournalSelection, follow_journal
from stateward.client.output import results
from stateward.client.session import Session, on_server
from stateward.client.shared_options import Everywhere, Object, complete_objects

Watched = Annotated[
    str | None, typer.Argument(metavar="OBJECT", help="Only this object.", autocompletion=complete_objects)
]
After = Annotated[
    int | None,
    typer.Option(
        "--after",
        min=0,
        help="Begin after the entry of this number (seq in --json); without it, only new entries are shown.",
    ),
]
Count = Annotated[int | None, typer.Option("--count", min=1, help="Stop after this many entries.")]


@on_server
def watch(
    session: Session,
    object: Watched = None,  # noqa: A002 - the glossary's word
    kind: OnlyKind = None,
    after: After = None,
    everywhere: Everywhere = False,
    count: Count = None,
) -> None:
    """Show the journal as it grows, line by line, until Ctrl-C.

    stateward watch
    stateward watch vm/web-1 --json
    """
    selection = JournalSelection(
        after=after,
        ns=None if everywhere else session.ns,
        kind=None if kind is None else session.kind(kind),
        object=None if object is None else session.find(parse_ref(object)).id,
    )
    if not everywhere:
        session.require_namespace()
    console = results()
    for number, line in enumerate(follow_journal(session, selection), 1):
        if session.json:
            session.print_data_line(line)
        else:
            console.print(formatting.entry_text(session.state_class, line), soft_wrap=True)
        if number == count:
            return


@on_server
def history(
    session: Session,
    object: Object,  # noqa: A002
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only this many of the newest entries.")] = None,
) -> None:
    """Show what has happened to an object, also to a removed one.

    stateward history vm/web-1 --limit 20
    """
    named = parse_ref(object)
    lines = list(session.client.object_history(session.ns, named.id))
    shown = lines if limit is None else lines[-limit:]
    rows = (
        (
            formatting.utc_text(entry.at),
            entry.event,
            formatting.state_text(session.state_class, entry.kind, entry.source or ""),
            formatting.state_text(session.state_class, entry.kind, entry.target or ""),
            formatting.actor_text(entry.actor, entry.who),
            entry.op or "",
            formatting.error_text(entry.reason),
        )
        for entry in shown
    )
    session.show(
        shown, lambda _: formatting.filled_table(("when", "event", "from", "to", "by", "operation", "why"), rows)
    )
