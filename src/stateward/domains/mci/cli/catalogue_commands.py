"""`stateward mci spec ...` and `stateward mci image ...`: names in a namespace for what a provider offers."""

import re
from typing import Annotated

import typer
from rich.table import Table

from stateward import naming
from stateward.client.confirmation import confirm_removal
from stateward.client.formatting import filled_table
from stateward.client.output import clean, results
from stateward.client.session import Session, Yes, on_server
from stateward.domains.mci.cli.tumblebug_calls import ImageEntry, SpecEntry, ask
from stateward.errors import BadInput

specs = typer.Typer(no_args_is_help=True, help="Register, list and remove sizes of machines.")
images = typer.Typer(no_args_is_help=True, help="Register, list and remove images of machines.")

RESOURCES = "resources"

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name that fleets use for it.")]
At = Annotated[str, typer.Option("--connection", metavar="NAME", help="The connection that offers it.")]
Native = Annotated[str, typer.Option("--native", metavar="NAME", help="What the provider calls it.")]
Processors = Annotated[int, typer.Option("--vcpu", min=1, help="Its processors, for people.")]
Memory = Annotated[float, typer.Option("--memory", metavar="GIB", min=0, help="Its memory, for people.")]
Cost = Annotated[float, typer.Option("--cost", metavar="DOLLARS", min=0, help="Its price per hour.")]
System = Annotated[str, typer.Option("--system", metavar="TEXT", help="Its operating system, such as 'Debian 12'.")]


@specs.command("add")
@on_server
def add_spec(
    session: Session,
    name: Name,
    connection: At,
    native: Native,
    vcpu: Processors = 1,
    memory: Memory = 1,
    cost: Cost = 0,
) -> None:
    """Register a size of machines of a connection."""
    wanted = SpecEntry(_checked(name), connection, native, vcpu, memory, cost)
    made = ask(session, SpecEntry, "POST", RESOURCES, "spec", body=wanted)
    session.show(made, lambda made: _spec_table([made]))


@specs.command("list")
@on_server
def list_specs(session: Session) -> None:
    """List the sizes that are registered in the namespace."""
    answer = ask(session, dict[str, list[SpecEntry]], "GET", RESOURCES, "spec")
    session.show(answer["spec"], _spec_table)


@specs.command("remove")
@on_server
def remove_spec(session: Session, name: Name, yes: Yes = False) -> None:
    """Remove a size; VMs keep what they were created from."""
    _remove(session, "spec", name, yes)


@images.command("add")
@on_server
def add_image(session: Session, name: Name, connection: At, native: Native, system: System = "") -> None:
    """Register an image of a connection."""
    wanted = ImageEntry(_checked(name), connection, native, system)
    made = ask(session, ImageEntry, "POST", RESOURCES, "image", body=wanted)
    session.show(made, lambda made: _image_table([made]))


@images.command("list")
@on_server
def list_images(session: Session) -> None:
    """List the images that are registered in the namespace."""
    answer = ask(session, dict[str, list[ImageEntry]], "GET", RESOURCES, "image")
    session.show(answer["image"], _image_table)


@images.command("remove")
@on_server
def remove_image(session: Session, name: Name, yes: Yes = False) -> None:
    """Remove an image; VMs keep what they were created from."""
    _remove(session, "image", name, yes)


def _checked(name: str) -> str:
    """Return a name, or raise: without one, the server would choose it."""
    if re.match(naming.NAME, name) is None:
        raise BadInput("NAME", name, naming.NAME_MEANS)
    return name


def _remove(session: Session, kind: str, name: str, yes: bool) -> None:
    session.yes = yes
    confirm_removal(session, f"Remove the {kind} {name}?")
    ask(session, object, "DELETE", RESOURCES, kind, ("NAME", name))
    if session.json:
        session.print_data({"removed": name})
    else:
        results().print(f"{kind.capitalize()} {clean(name)} is removed.", markup=False, highlight=False)


def _spec_table(entries: list[SpecEntry]) -> Table:
    heads = ("spec", "connection", "at the provider", "vcpu", "memory GiB", "$ per hour")
    rows = (
        (entry.name, entry.connection_name, entry.csp_spec_name, entry.vcpu, entry.memory_gib, entry.cost_per_hour)
        for entry in entries
    )
    return filled_table(heads, ((*map(str, row),) for row in rows))


def _image_table(entries: list[ImageEntry]) -> Table:
    heads = ("image", "connection", "at the provider", "system")
    return filled_table(
        heads, ((entry.name, entry.connection_name, entry.csp_image_name, entry.os_type) for entry in entries)
    )
