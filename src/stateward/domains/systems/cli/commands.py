"""`stateward system ...`: deploy, show and tear down systems of services."""

from pathlib import Path
from typing import Annotated, Any

import typer

from stateward.client.action_requests import RequestOutcome, finish_requests, read_outcome, wait_for_outcomes
from stateward.client.confirmation import confirm_action, confirm_removal
from stateward.client.http import NOTHING, Params, idempotency_headers
from stateward.client.output import clean, out
from stateward.client.session import Session, on_server, requests_action
from stateward.client.url_paths import NamedPart, UrlPath, url_path
from stateward.domains.systems.backends.port import LogExcerpt
from stateward.domains.systems.cli.secret_commands import secret_app
from stateward.domains.systems.cli.views import SystemTree, change_table, lock_table, system_tree
from stateward.domains.systems.views import AskedView, ChangeView, SystemLockView
from stateward.errors import BadInput

app = typer.Typer(no_args_is_help=True, help="Deploy, watch and tear down systems of services.")
app.add_typer(secret_app, name="secret")

System = Annotated[str, typer.Argument(metavar="SYSTEM", help="The system's name.")]
File = Annotated[Path, typer.Option("--file", "-f", metavar="FILE", help="The definition, in YAML.")]
MaybeFile = Annotated[
    Path | None, typer.Option("--file", "-f", metavar="FILE", help="A definition, in YAML, to deploy to it at once.")
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
Backend = Annotated[str, typer.Option("--backend", help="Where its services run: local, container, or simulated.")]
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
Force = Annotated[bool, typer.Option("--force", help="Cancel deploys that are under way, and wait for their end.")]

PAUSE = 0.5


@app.command()
@requests_action
def create(
    session: Session,
    system: System,
    file: MaybeFile = None,
    backend: Backend = "local",
) -> None:
    """Create a system; with --file, deploy it at once."""
    asked = _ask(session, "POST", body={"name": system, "backend": backend})
    if file is None:
        _finish(session, asked)
        return
    wait_for_outcomes(session, [_outcome(session, asked)], session.timeout)
    _finish(session, _deploy(session, system, file, "/", None))


@app.command()
@requests_action
def retry(session: Session, system: System) -> None:
    """Retry the creation of a system that has failed."""
    _finish(session, _ask(session, "POST", ("SYSTEM", system), "retry"))


@app.command()
@requests_action
def deploy(
    session: Session,
    system: System,
    file: File,
    path: At = "/",
    queue: Queue = None,
) -> None:
    """Deploy a definition: create, change and remove services at a path and below it."""
    _finish(session, _deploy(session, system, file, path, queue))


def _deploy(session: Session, system: str, file: Path, path: str, queue: float | None) -> AskedView:
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise BadInput("--file", str(file), f"a file that can be read ({error.strerror})") from error
    base = str(file.absolute().parent)
    body = {"definition": text, "file": str(file), "base": base, "path": path, "wait": queue}
    return _ask(session, "POST", ("SYSTEM", system), "deploys", body=body)


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
    _finish(session, _ask(session, "POST", ("SYSTEM", system), "rollback", body=body))


@app.command()
@on_server
def cancel(session: Session, system: System, deploy: Deploy) -> None:
    """Cancel a deploy: it goes back to the definition before."""
    _finish(session, _ask(session, "POST", ("SYSTEM", system), "deploys", ("DEPLOY", deploy), "cancel"))


@app.command()
@requests_action
def teardown(session: Session, system: System, queue: Queue = None) -> None:
    """End all services of a system; the system stays."""
    confirm_removal(session, f"End all services of {session.ns}/{system}?")
    _finish(session, _ask(session, "POST", ("SYSTEM", system), "teardowns", body={"wait": queue}))


@app.command()
@requests_action
def delete(session: Session, system: System, force: Force = False) -> None:
    """Delete a system with all its services."""
    params = {"force": str(force).lower()}
    confirm_action(session, "delete", [system], {"tree": system, "locks": [{"path": "/", "mode": "X"}]})
    _finish(session, _ask(session, "DELETE", ("SYSTEM", system), params=params))


@app.command()
@on_server
def status(session: Session, system: System, path: At = "/", instances: Instances = True) -> None:
    """Show a system with its services and their instances."""
    params = {"path": path, "instances": str(instances).lower()}
    found = session.client.http.call(SystemTree, "GET", _at(session, ("SYSTEM", system)), params=params)
    session.show(found, lambda found: system_tree(session, found))


@app.command()
@on_server
def deploys(session: Session, system: System) -> None:
    """List the deploys of a system, newest first."""
    found = session.client.http.call(list[ChangeView], "GET", _at(session, ("SYSTEM", system), "deploys"))
    session.show(found, lambda found: change_table(session, found))


@app.command()
@on_server
def locks(session: Session, system: System) -> None:
    """List the locks of a system: who holds what, and who waits for what."""
    found = session.client.http.call(list[SystemLockView], "GET", _at(session, ("SYSTEM", system), "locks"))
    session.show(found, lock_table)


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
    found = _written(session, system, {"path": path, "instance": instance, "most": tail})
    if session.json:
        session.print_data(found)
        return
    places = {one.instance: _shown(one) for one in found}
    while follow:
        session.pause(PAUSE)
        for one in _written(session, system, {"path": path, "instance": instance, "most": 1}):
            places[one.instance] = _followed(session, system, path, one, places.get(one.instance, 0))


def _followed(session: Session, system: str, path: str, one: LogExcerpt, place: int) -> int:
    """Print the log of an instance after an offset; returns the next offset."""
    if one.next <= place:
        return one.next
    params = {"path": path, "instance": one.instance, "after": place}
    for more in _written(session, system, params):
        place = _shown(more)
    return place


def _written(session: Session, system: str, params: dict[str, Any]) -> list[LogExcerpt]:
    return session.client.http.call(list[LogExcerpt], "GET", _at(session, ("SYSTEM", system), "logs"), params=params)


def _shown(one: LogExcerpt) -> int:
    for line in one.text.splitlines():
        out().print(f"{clean(one.instance)}  {clean(line)}", markup=False, highlight=False, soft_wrap=True)
    return one.next


def _ask(
    session: Session, method: str, *parts: str | NamedPart, body: object = None, params: Params = NOTHING
) -> AskedView:
    headers, where = idempotency_headers(), _at(session, *parts)
    return session.client.http.call(AskedView, method, where, body=body, headers=headers, params=params)


def _at(session: Session, *parts: str | NamedPart) -> UrlPath:
    return url_path("systems", ("namespace", session.ns), *parts)


def _finish(session: Session, asked: AskedView) -> None:
    finish_requests(session, [_outcome(session, asked)])


def _outcome(session: Session, asked: AskedView) -> RequestOutcome:
    return read_outcome(session, asked.id, asked.operation)
