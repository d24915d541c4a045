"""`stateward system job ...`: the jobs of a system, and their runs."""

from typing import Annotated, Any

import typer

from stateward.client.action_requests import finish_cancellation
from stateward.client.output import clean, err, out
from stateward.client.session import Session, on_server, requests_action
from stateward.domains.systems.backends.port import LogExcerpt
from stateward.domains.systems.cli.system_requests import at, finish, request_action
from stateward.domains.systems.cli.views import JobNode, job_table, run_table
from stateward.domains.systems.job_views import JobRunView

app = typer.Typer(no_args_is_help=True, help="Run, watch and suspend the jobs of a system.")

System = Annotated[str, typer.Argument(metavar="SYSTEM", help="The system's name.")]
JobPath = Annotated[str, typer.Argument(metavar="PATH", help="The job, such as /store/report.")]
MaybeJobPath = Annotated[
    str, typer.Argument(metavar="[PATH]", help="Only the job at this path, or the jobs below it; / is all of them.")
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="The run, as `system job runs` lists it.")]
Instance = Annotated[str | None, typer.Option("--instance", "-i", metavar="NAME", help="Only this instance.")]
Tail = Annotated[int, typer.Option("--tail", min=1, max=1_000_000, metavar="BYTES", help="Show the last BYTES only.")]


@app.command("list")
@on_server
def list_(session: Session, system: System, path: MaybeJobPath = "/") -> None:
    """List the jobs of a system, with their next scheduled times and last runs."""
    where = at(session, ("SYSTEM", system), "jobs")
    shown = session.client.http.call(list[JobNode], "GET", where, params={"path": path})
    session.show(shown, lambda views: job_table(session, views))


@app.command()
@requests_action
def run(session: Session, system: System, path: JobPath) -> None:
    """Run a job now, also if it is suspended."""
    finish(session, request_action(session, "POST", ("SYSTEM", system), "runs", body={"path": path}))


@app.command()
@on_server
def runs(session: Session, system: System, path: MaybeJobPath = "/") -> None:
    """List the runs of jobs, newest first."""
    where = at(session, ("SYSTEM", system), "runs")
    shown = session.client.http.call(list[JobRunView], "GET", where, params={"path": path})
    session.show(shown, lambda views: run_table(session, views))


@app.command()
@requests_action
def cancel(session: Session, system: System, run: Run) -> None:
    """Cancel a run: its instances are stopped."""
    asked = request_action(session, "POST", ("SYSTEM", system), "runs", ("RUN", run), "cancel")
    finish_cancellation(session, asked.id)


@app.command()
@requests_action
def suspend(session: Session, system: System, path: JobPath) -> None:
    """Suspend a job: its schedule and deploys do not run it."""
    finish(session, request_action(session, "POST", ("SYSTEM", system), "jobs", "suspend", body={"path": path}))


@app.command()
@requests_action
def resume(session: Session, system: System, path: JobPath) -> None:
    """Resume a suspended job, from its next scheduled time on."""
    finish(session, request_action(session, "POST", ("SYSTEM", system), "jobs", "resume", body={"path": path}))


@app.command()
@on_server
def logs(session: Session, system: System, run: Run, instance: Instance = None, tail: Tail = 10_000) -> None:
    """Show what the instances of a run have written."""
    params: dict[str, Any] = {"instance": instance, "most": tail}
    where = at(session, ("SYSTEM", system), "runs", ("RUN", run), "logs")
    excerpts = session.client.http.call(list[LogExcerpt], "GET", where, params=params)
    if session.json:
        session.print_data(excerpts)
        return
    for excerpt in excerpts:
        print_excerpt(excerpt)


def print_excerpt(excerpt: LogExcerpt) -> None:
    """Print a part of a log, each line with the name of the instance."""
    if excerpt.why:
        err().print(
            f"{clean(excerpt.instance)}  its log cannot be read: {clean(excerpt.why)}", markup=False, soft_wrap=True
        )
    for line in excerpt.text.splitlines():
        out().print(f"{clean(excerpt.instance)}  {clean(line)}", markup=False, highlight=False, soft_wrap=True)
