"""`stateward edge appinst logs|exec`: what an app writes, and commands where it runs."""

import sys
from typing import Annotated

import typer

from stateward.agents.messages import LogPart
from stateward.client.output import clean, err, out, write_program_output
from stateward.client.session import Session, on_server
from stateward.domains.edge.api.schemas import CommandView
from stateward.domains.edge.cli.instance_requests import APPINST, object_parts, path

PAUSE_S = 0.5
"""Seconds between two reads of a log that is followed."""

MARGIN_S = 20.0
"""Seconds that the server and the agent may need besides the command's own."""

Name = Annotated[str, typer.Argument(metavar=APPINST, help="The app in its cluster.")]
Part = Annotated[str, typer.Option(metavar="PART", help="Only this part of the app.")]
Tail = Annotated[int, typer.Option(min=1, max=65_536, metavar="BYTES", help="How much of the end of each log.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written from now on.")]
Within = Annotated[float, typer.Option(min=0.1, max=600, metavar="SECONDS", help="After which it is ended.")]
Words = Annotated[list[str], typer.Argument(metavar="COMMAND...", help="The program and its arguments, after --.")]


def register_output(group: typer.Typer) -> None:
    """Add the commands to the group of app instances."""
    group.command("logs")(on_server(show_logs))
    group.command("exec")(on_server(run_command))


def show_logs(session: Session, name: Name, part: Part = "", tail: Tail = 10_000, follow: Follow = False) -> None:
    """Show what an app instance has written."""
    parts = _read(session, name, part, "", tail)
    if session.json:
        session.print_data(parts)
        return
    cursors = {log_part.part: _print(log_part) for log_part in parts}
    while follow:
        session.pause(PAUSE_S)
        fresh = [
            log_part.part
            for log_part in _read(session, name, part, "", 1)
            if log_part.next != cursors.get(log_part.part)
        ]
        for which in fresh:
            for log_part in _read(session, name, which, cursors.get(which, "0"), tail):
                cursors[which] = _print(log_part)


def run_command(session: Session, name: Name, words: Words, part: Part = "", within: Within = 60.0) -> None:
    """Run a command where an app instance runs, and exit with its status."""
    body = {"argv": words, "part": part, "within": within}
    where = path(session, *object_parts(APPINST, name), "exec")
    answer = session.client.http.call(CommandView, "POST", where, body=body, patience=within + MARGIN_S)
    if session.json:
        session.print_data(answer)
    else:
        write_program_output(answer.written, sys.stdout)
        if answer.omitted:
            err().print(f"{answer.omitted:,} bytes of output before that are not shown.", markup=False)
    if answer.status:
        raise typer.Exit(answer.status)


def _read(session: Session, name: str, part: str, after: str, most: int) -> list[LogPart]:
    where = path(session, *object_parts(APPINST, name), "logs")
    return session.client.http.call(list[LogPart], "GET", where, params={"part": part, "after": after, "most": most})


def _print(log_part: LogPart) -> str:
    for line in log_part.text.splitlines():
        out().print(f"{clean(log_part.part)}  {clean(line)}", markup=False, highlight=False, soft_wrap=True)
    return log_part.next
