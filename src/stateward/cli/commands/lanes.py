"""`stateward lanes ...`: show and set the limits of lanes and their groups."""

from typing import Annotated

import typer
from rich.table import Table

from stateward.cli.default_command import set_default_command
from stateward.client.formatting import filled_table, utc_text
from stateward.client.output import err
from stateward.client.session import Session, on_server
from stateward.errors import BadInput
from stateward.schemas.deployment import LanesView

app = typer.Typer(help="Show the lanes, or set their limits.")

Lane = Annotated[str, typer.Argument(metavar="LANE", help="A lane, such as aws/eu-west-1.")]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="A group of lanes, such as aws.")]
Of = Annotated[
    str | None,
    typer.Option("--group", help="The group of the lane; for a new lane, the part of its name before the first slash."),
]
Capacity = Annotated[int, typer.Option("--capacity", min=0, help="How many operations may run in it at once.")]
Count = Annotated[int, typer.Option("--lanes", min=0, help="How many of its lanes may be active at once.")]

UNLIMITED = 2**31 - 1


@on_server
def show(session: Session) -> None:
    """Show all lanes with their limits and loads."""
    lanes = session.client.lanes()
    session.show(lanes, lane_table)


@on_server
def set_(session: Session, lane: Lane, capacity: Capacity, group: Of = None) -> None:
    """Set how many operations may run in a lane at once."""
    if not lane:
        raise BadInput("lane", lane, "a lane's name")
    known = {view.lane: view.grp for view in session.client.lanes().lanes}
    set_to = session.client.set_lane(lane, group or known.get(lane) or lane.partition("/")[0], capacity)
    session.show(set_to, lambda view: f"Lane {view.lane} of {view.grp}: limit is {limit_text(view.capacity)} at once.")
    if lane not in known:
        _notice_unused(session, "lane", lane)


@on_server
def set_group(session: Session, group: Group, lanes: Count) -> None:
    """Set how many lanes of a group may be active at once."""
    known = {view.grp for view in session.client.lanes().groups}
    set_to = session.client.set_lane_group(group, lanes)
    session.show(set_to, lambda view: f"Group {view.grp}: limit of active lanes is {limit_text(view.lanes)}.")
    if group not in known:
        _notice_unused(session, "group", group)


def _notice_unused(session: Session, what: str, name: str) -> None:
    """Print a notice that nothing uses the limit yet: it may be set in advance, but the name may also be mistyped."""
    if not session.json:
        err().print(f"Notice: no {what} {name} is in use now; the limit holds as soon as one is.", markup=False)


def lane_table(lanes: LanesView) -> Table:
    """Return all lanes as a table."""
    limits = {group.grp: group.lanes for group in lanes.groups}
    rows = (
        (
            lane.lane or "(any)",
            lane.grp,
            limit_text(limits.get(lane.grp)),
            limit_text(lane.capacity),
            str(lane.running),
            "yes" if lane.waiting else "",
            utc_text(lane.back_off),
        )
        for lane in lanes.lanes
    )
    return filled_table(("lane", "group", "lanes at once", "capacity", "running", "waiting", "backed off until"), rows)


def limit_text(number: int | None) -> str:
    """Return a limit as text: `none` if there is none, empty if it is not known."""
    return "" if number is None else "none" if number >= UNLIMITED else str(number)


set_default_command(app, show)
app.command("show")(show)
app.command("set")(set_)
app.command("group")(set_group)
