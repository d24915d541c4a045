"""`stateward system ...`: deploy, show and tear down systems of services."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from stateward.client.action_requests import finish_cancellation, wait_for_outcomes
from stateward.client.arguments import read_source
from stateward.client.confirmation import confirm_action, confirm_removal
from stateward.client.output import err, write_program_output
from stateward.client.session import Session, on_server, requests_action
from stateward.domains.systems.backends.port import CommandOutcome, LogExcerpt
from stateward.domains.systems.cli import job_commands
from stateward.domains.systems.cli.node_commands import node_app
from stateward.domains.systems.cli.secret_commands import secret_app
from stateward.domains.systems.cli.system_requests import at, finish, outcome_of, request_action
from stateward.domains.systems.cli.views import SystemTree, change_table, lock_table, system_tree
from stateward.domains.systems.views import ChangeView, SystemLockView
from stateward.errors import BadInput

app = typer.Typer(no_args_is_help=True, help="Deploy, watch and tear down systems of services.")
app.add_typer(secret_app, name="secret")
app.add_typer(job_commands.app, name="job")
app.add_typer(node_app, name="node")

System = Annotated[str, typer.Argument(metavar="SYSTEM", help="The system's name.")]
File = Annotated[
    Path, typer.Option("--file", "-f", metavar="FILE", help="The definition, in YAML; - is standard input.")
]
MaybeFile = Annotated[
    Path | None,
    typer.Option("--file", "-f", metavar="FILE", help="A definition, in YAML, to deploy at once; - is stdin."),
]
At = Annotated[
    str,
    typer.Option("--path", "-p", metavar="PATH", help="The part of the system, such as /store/api; / is all of it."),
]
MaybeAt = Annotated[
    str | None, typer.Option("--path", "-p", metavar="PATH", help="Roll back the last deploy of this path.")
]
Queue = Annotated[
    float | None,
    typer.Option(
        "--queue",
        min=0,
        metavar="SECONDS",
        help="Seconds to wait for the lock, if others deploy here; without it, the command is refused at once.",
    ),
]
Backend = Annotated[
    str, typer.Option("--backend", help="Where its services run: local, container, nodes, or simulated.")
]
Deploy = Annotated[str, typer.Argument(metavar="DEPLOY", help="The deploy, as `system deploys` lists it.")]
MaybeDeploy = Annotated[
    str | None, typer.Option("--deploy", metavar="DEPLOY", help="Roll back this deploy, instead of the last one.")
]
Service = Annotated[str, typer.Argument(metavar="PATH", help="The service, such as /store/api.")]
Instance = Annotated[str | None, typer.Option("--instance", "-i", metavar="NAME", help="Only this instance.")]
Tail = Annotated[int, typer.Option("--tail", min=1, max=1_000_000, metavar="BYTES", help="Show the last BYTES only.")]
Follow = Annotated[bool, typer.Option("--follow", help="Keep printing what is written, until Ctrl-C.")]
Instances = Annotated[
    bool, typer.Option("--instances/--no-instances", "-i/-I", help="Show the instances of services, too.")
]
AllowEmpty = Annotated[
    bool, typer.Option("--allow-empty", help="Deploy a definition without services and jobs: all are removed.")
]
Force = Annotated[bool, typer.Option("--force", help="Cancel deploys that are under way, and wait for their end.")]

Target = Annotated[str, typer.Argument(metavar="SYSTEM/PATH", help="The service, such as shop/store/api.")]
Words = Annotated[list[str], typer.Argument(metavar="COMMAND...", help="The program and its arguments, after --.")]
CommandTimeout = Annotated[
    float, typer.Option("--timeout", min=0.1, max=600, metavar="SECONDS", help="Seconds after which it is given up.")
]

PAUSE = 0.5
FOLLOWED_BYTES, PARTS_AT_ONCE = 100_000, 20
"""The size of the parts in which a log is followed, and how many are read before the next pause."""
MARGIN_S = 20.0
"""Seconds that the server may need besides the command's own."""
TIMED_OUT = 124


@app.command()
@requests_action
def create(
    session: Session,
    system: System,
    file: MaybeFile = None,
    backend: Backend = "local",
) -> None:
    """Create a system; with --file, deploy it at once."""
    first = {} if file is None else {"first_deploy": _definition(file)}
    asked = request_action(session, "POST", body={"name": system, "backend": backend, **first})
    if file is None:
        finish(session, asked)
        return
    wait_for_outcomes(session, [outcome_of(session, asked)], session.timeout)
    finish(session, request_action(session, "POST", ("SYSTEM", system), "deploys", body=first["first_deploy"]))


@app.command()
@requests_action
def retry(session: Session, system: System) -> None:
    """Retry the creation of a system that has failed."""
    finish(session, request_action(session, "POST", ("SYSTEM", system), "retry"))


@app.command()
@requests_action
def deploy(
    session: Session,
    system: System,
    file: File,
    path: At = "/",
    queue: Queue = None,
    allow_empty: AllowEmpty = False,
) -> None:
    """Deploy a definition: create, change and remove services at a path and below it."""
    body = {**_definition(file), "path": path, "wait": queue, **({"allow_empty": True} if allow_empty else {})}
    finish(session, request_action(session, "POST", ("SYSTEM", system), "deploys", body=body))


def _definition(file: Path) -> dict[str, str]:
    text = read_source("--file", str(file)).decode()
    return {"definition": text, "file": str(file), "base": str(file.absolute().parent)}


@app.command()
@requests_action
def rollback(
    session: Session,
    system: System,
    path: MaybeAt = None,
    deploy: MaybeDeploy = None,
    queue: Queue = None,
) -> None:
    """Deploy what was there before the last deploy that succeeded, or before --deploy."""
    body = {"path": path, "deploy": deploy, "wait": queue}
    finish(session, request_action(session, "POST", ("SYSTEM", system), "rollback", body=body))


@app.command()
@requests_action
def cancel(session: Session, system: System, deploy: Deploy) -> None:
    """Cancel a deploy: it goes back to the definition before."""
    asked = request_action(session, "POST", ("SYSTEM", system), "deploys", ("DEPLOY", deploy), "cancel")
    finish_cancellation(session, asked.id)


@app.command()
@requests_action
def teardown(session: Session, system: System, queue: Queue = None) -> None:
    """End all services of a system; the system stays."""
    confirm_removal(session, f"End all services of {session.ns}/{system}?")
    finish(session, request_action(session, "POST", ("SYSTEM", system), "teardowns", body={"wait": queue}))


@app.command()
@requests_action
def delete(session: Session, system: System, force: Force = False) -> None:
    """Delete a system with all its services."""
    params = {"force": str(force).lower()}
    confirm_action(session, "delete", [system], {"tree": system, "locks": [{"path": "/", "mode": "X"}]})
    finish(session, request_action(session, "DELETE", ("SYSTEM", system), params=params))


@app.command()
@on_server
def status(session: Session, system: System, path: At = "/", instances: Instances = True) -> None:
    """Show a system with its services and their instances."""
    params = {"path": path, "instances": str(instances).lower()}
    shown = session.client.http.call(SystemTree, "GET", at(session, ("SYSTEM", system)), params=params)
    session.show(shown, lambda tree: system_tree(session, tree))


@app.command()
@on_server
def deploys(session: Session, system: System) -> None:
    """List the deploys of a system, newest first."""
    shown = session.client.http.call(list[ChangeView], "GET", at(session, ("SYSTEM", system), "deploys"))
    session.show(shown, lambda views: change_table(session, views))


@app.command()
@on_server
def locks(session: Session, system: System) -> None:
    """List the locks of a system: who holds what, and who waits for what."""
    shown = session.client.http.call(list[SystemLockView], "GET", at(session, ("SYSTEM", system), "locks"))
    session.show(shown, lock_table)


@app.command()
@on_server
def logs(
    session: Session,
    system: System,
    path: Service,
    instance: Instance = None,
    tail: Tail = 10_000,
    follow: Follow = False,
) -> None:
    """Show what the instances of a service have written."""

    def read(**wanted: str | int | None) -> list[LogExcerpt]:
        params = {"path": path, **wanted}
        return session.client.http.call(list[LogExcerpt], "GET", at(session, ("SYSTEM", system), "logs"), params=params)

    excerpts = read(instance=instance, most=tail)
    if session.json:
        session.print_data(excerpts)
        return
    if not follow:
        for excerpt in excerpts:
            job_commands.print_excerpt(excerpt)
        return
    follower = LogFollower(read)
    for excerpt in excerpts:
        follower.begin(excerpt)
    while True:
        session.pause(PAUSE)
        for excerpt in read(instance=instance, most=1):
            follower.follow(excerpt)


@app.command("exec")
@on_server
def run_command(
    session: Session,
    service: Target,
    words: Words,
    instance: Instance = None,
    timeout: CommandTimeout = 60.0,
) -> None:
    """Run a command in an instance of a service, and exit with its status (124: it did not end in time)."""
    system, slash, path = service.partition("/")
    if not slash:
        raise BadInput("SYSTEM/PATH", service, "a system and the path of a service, such as shop/store/api")
    body = {"path": f"/{path}", "argv": words, "instance": instance, "timeout": timeout}
    where = at(session, ("SYSTEM", system), "exec")
    done = session.client.http.call(CommandOutcome, "POST", where, body=body, patience=timeout + MARGIN_S)
    if session.json:
        session.print_data(done)
    else:
        write_program_output(done.stdout, sys.stdout)
        write_program_output(done.stderr, sys.stderr)
        if done.truncated:
            err().print("Some of the output is left out: it was too long.", markup=False)
    if done.exit_status != 0:
        raise typer.Exit(TIMED_OUT if done.exit_status is None else done.exit_status)


class LogFollower:
    """Prints whole lines of logs as they are written, and a line without an end once nothing follows it."""

    def __init__(self, read: Callable[..., list[LogExcerpt]]) -> None:
        self._read = read
        self._places: dict[str, int] = {}  # bounded by: the instances of one service while it is followed
        self._unended: dict[str, str] = {}

    def begin(self, excerpt: LogExcerpt) -> None:
        """Print the end of a log, where the follower begins."""
        self._places[excerpt.instance] = excerpt.next
        self._show(excerpt)

    def follow(self, newest: LogExcerpt) -> None:
        """Print what was written to a log, given its newest part."""
        name, place = newest.instance, self._places.get(newest.instance, 0)
        # A log that was emptied ends before the place: what it held comes first, then its new beginning.
        reads = PARTS_AT_ONCE if newest.next != place else 0
        for _ in range(reads):
            begin = place
            for more in self._read(instance=name, after=begin, most=FOLLOWED_BYTES):
                place = more.next
                self._show(more)
            if place == begin:
                break
        if place == self._places.get(name) and (unended := self._unended.pop(name, "")):
            job_commands.print_excerpt(LogExcerpt(name, unended, place))
        self._places[name] = place

    def _show(self, excerpt: LogExcerpt) -> None:
        lines, end, unended = (self._unended.pop(excerpt.instance, "") + excerpt.text).rpartition("\n")
        if unended:
            self._unended[excerpt.instance] = unended
        job_commands.print_excerpt(replace(excerpt, text=lines + end))
