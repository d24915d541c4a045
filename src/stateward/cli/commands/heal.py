"""`stateward heal`: run the healer now, or list what is stuck."""

from typing import Annotated

import typer

from stateward.client.formatting import filled_table, utc_text
from stateward.client.output import NO
from stateward.client.session import Session, on_server

Looking = Annotated[bool, typer.Option("--dry-run", help="Only list what is stuck; exits with 1 if anything is.")]


@on_server
def heal(session: Session, dry_run: Looking = False) -> None:
    """Put back what dead workers held and settle what is overdue, now."""
    if dry_run:
        _list(session)
        return
    done = session.client.heal()
    told = f"{done.freed} put back from dead workers, {done.settled} overdue settled or hurried on."
    session.show(done, lambda _: told)


def _list(session: Session) -> None:
    found = session.client.stuck()
    titles = ("object", "namespace", "state", "action", "operation", "why", "deadline")
    rows = ((one.object, one.ns, one.state, one.action, one.op, one.why, utc_text(one.deadline)) for one in found)
    session.show(found, lambda found: filled_table(titles, rows) if found else "Nothing is stuck.")
    if found:
        raise typer.Exit(NO)
