"""`stateward ovc ...`: machines, cloudspaces, accounts, disks, images and nodes.

An object is named by its id, or as KIND/NAME: `machine/db`, `node/n1`.
"""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from stateward.client.action_requests import finish_requests, read_outcome
from stateward.client.arguments import ObjectSelector, parse_pairs
from stateward.client.http import NOTHING, Params, idempotency_headers
from stateward.client.output import print_json, results
from stateward.client.session import Session, on_server
from stateward.client.shared_options import Timeout, Wait
from stateward.domains.ovc.api.views import HealingView, ItemView, ObjectQueueView, OvcAcceptedView
from stateward.domains.ovc.cli.views import healing_table, item_table, orphan_table, queue_table, report_table
from stateward.errors import BadInput

app = typer.Typer(no_args_is_help=True, help="Machines, cloudspaces, accounts, disks, images and nodes.")
create = typer.Typer(no_args_is_help=True, help="Make something.")
app.add_typer(create, name="create")

PATHS = {
    "account": "accounts",
    "cloudspace": "cloudspaces",
    "vm": "machines",
    "machine": "machines",
    "disk": "disks",
    "image": "images",
    "node": "nodes",
}
KINDS = {"machine": "vm"}
FINAL = ("DESTROYED", "DECOMMISSIONED")

Thing = Annotated[str, typer.Argument(metavar="OBJECT", help="An object: its id, or KIND/NAME such as machine/db.")]
Machine = Annotated[str, typer.Argument(metavar="MACHINE", help="A machine: its id, or machine/NAME.")]
Disk = Annotated[str, typer.Argument(metavar="DISK", help="A disk: its id, or disk/NAME.")]
Node = Annotated[str, typer.Argument(metavar="NODE", help="A node: its id, or node/NAME.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The new object's name.")]
Account = Annotated[str, typer.Option("--account", help="The account, by its id or as account/NAME.")]
Cloudspace = Annotated[str, typer.Option("--cloudspace", help="The cloudspace, by its id or as cloudspace/NAME.")]
Image = Annotated[str, typer.Option("--image", help="The image, by its id or as image/NAME.")]
Gib = Annotated[int, typer.Option("--gib", min=1, help="The disk's size.")]
Size = Annotated[str, typer.Option("--size", help="tiny, small, medium, large, or such as 2c512m.")]
Retention = Annotated[float, typer.Option("--retention", min=0, help="Days that deleted things lie in the bin.")]
Source = Annotated[str, typer.Option("--source", help="The built-in guest, or a file of the library.")]
Driver = Annotated[str, typer.Option("--driver", help="simulated, process or qemu.")]
Options = Annotated[list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="Repeatable.")]
Kinds = Annotated[str, typer.Argument(metavar="KINDS", help="accounts, cloudspaces, machines, disks, images or nodes.")]
States = Annotated[str | None, typer.Option("--state", "-s", help="Only in these states, with commas between.")]
Permanently = Annotated[bool, typer.Option("--permanently", help="Destroy it for good.")]
Believed = Annotated[str | None, typer.Option("--status", help="Refuse it if the object is in another state.")]
To = Annotated[str | None, typer.Option("--node", help="The node that it is to go to; any other if none is named.")]
VmAction = Annotated[str, typer.Option("--vmaction", help="move its machines away, or stop them.")]
Stop = Annotated[bool, typer.Option("--stop", help="Let it take nothing more, and wait until it is drained and gone.")]
Hours = Annotated[float, typer.Option("--hours", min=0, help="Limit to the last N hours.")]

SIMPLE = {
    "deploy": "Deploy a machine or a cloudspace.",
    "start": "Start a machine.",
    "stop": "Stop a machine.",
    "pause": "Pause a machine, or (administrators) a cloudspace.",
    "resume": "Let a paused machine or cloudspace go on.",
    "reboot": "Reboot a machine.",
    "reset": "Reset a machine, or (administrators) a cloudspace.",
    "enable": "Enable an account, a cloudspace, an image or a node.",
    "disable": "Disable an account, a cloudspace or an image.",
    "restore": "Bring something back from the recycle bin, with all that went down with it.",
    "destroy": "Destroy something for good.",
    "decommission": "Take a node out of service for ever; its machines move away.",
}


# --- looking ---------------------------------------------------------------------------------------------------------


@app.command("list")
@on_server
def list_(session: Session, kinds: Kinds, state: States = None) -> None:
    """List the objects of a kind."""
    if kinds not in PATHS.values():
        raise BadInput("KINDS", kinds, f"one of {', '.join(dict.fromkeys(PATHS.values()))}")
    found: list[ItemView] = []
    while True:
        params: dict[str, Any] = {"state": state, "limit": 1000, "after": found[-1].id if found else None}
        page = session.client.http.call(list[ItemView], "GET", _at(session, f"/{kinds}"), params=params)
        found += page
        if len(page) < 1000:
            break
    session.show(found, lambda found: item_table(session, found) if found else f"No {kinds} in namespace {session.ns}.")


@app.command()
@on_server
def show(session: Session, object: Thing) -> None:
    """Show an object; a node with what became of its machines, and what is there and belongs to nobody."""
    found = session.client.http.call(ItemView, "GET", _at(session, _path(session, object)))
    if session.json:
        print_json(found)
        return
    results().print(item_table(session, [found]))
    if found.report is not None:
        results().print(report_table(found.report))
    if found.orphans:
        results().print(orphan_table(found.orphans))


@app.command()
@on_server
def queue(session: Session, object: Thing, stop: Stop = False) -> None:
    """Show what stands in an object's queue; or stop the queue."""
    path = _at(session, f"/queues/{_id(session, object)}")
    found = session.client.http.call(ObjectQueueView, "DELETE" if stop else "GET", path)
    session.show(found, lambda found: queue_table(found) if found.exists else f"{found.object} has no queue.")


@app.command()
@on_server
def healing(session: Session, hours: Hours = 24.0) -> None:
    """Show what is stuck, what was settled lately, what nodes have shown unasked, and what belongs to nobody."""
    params: dict[str, Any] = {"seconds": str(hours * 3600)}
    found = session.client.http.call(HealingView, "GET", _at(session, "/healing"), params=params)
    if session.json:
        print_json(found)
        return
    quiet = "Nothing is stuck, and nothing had to be healed."
    results().print(healing_table(found) if found.stuck or found.healed else quiet)
    if found.orphans:
        results().print(orphan_table(found.orphans))


# --- making ----------------------------------------------------------------------------------------------------------


@create.command("account")
@on_server
def create_account(
    session: Session, name: Name, retention: Retention = 7.0, wait: Wait = False, timeout: Timeout = None
) -> None:
    """Make an account."""
    _make(session, "accounts", {"name": name, "retention": retention * 86_400}, wait, timeout)


@create.command("cloudspace")
@on_server
def create_cloudspace(
    session: Session, name: Name, account: Account, wait: Wait = False, timeout: Timeout = None
) -> None:
    """Make a cloudspace."""
    _make(session, "cloudspaces", {"name": name, "account": _id(session, account)}, wait, timeout)


@create.command("machine")
@on_server
def create_machine(
    session: Session,
    name: Name,
    cloudspace: Cloudspace,
    image: Image,
    size: Size = "tiny",
    gib: Gib = 1,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Make a machine, and deploy it."""
    body = {"name": name, "cloudspace": _id(session, cloudspace), "image": _id(session, image), "size": size}
    _make(session, "machines", {**body, "gib": gib}, wait, timeout)


@create.command("disk")
@on_server
def create_disk(
    session: Session, name: Name, account: Account, gib: Gib = 1, wait: Wait = False, timeout: Timeout = None
) -> None:
    """Make a disk that belongs to no machine."""
    _make(session, "disks", {"name": name, "account": _id(session, account), "gib": gib}, wait, timeout)


@create.command("image")
@on_server
def create_image(
    session: Session, name: Name, account: Account, source: Source = "tick", wait: Wait = False, timeout: Timeout = None
) -> None:
    """Make an image."""
    _make(session, "images", {"name": name, "account": _id(session, account), "source": source}, wait, timeout)


@create.command("node")
@on_server
def create_node(
    session: Session,
    name: Name,
    driver: Driver = "simulated",
    option: Options = None,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Register a node."""
    body = {"name": name, "driver": driver, "options": parse_pairs("option", option or [])}
    _make(session, "nodes", body, wait, timeout)


# --- doing -----------------------------------------------------------------------------------------------------------


def _simple(action: str, about: str) -> Callable[..., None]:
    """Return the command of an action that needs nothing but its object."""

    def run(
        session: Session, object: Thing, status: Believed = None, wait: Wait = False, timeout: Timeout = None
    ) -> None:
        _do(session, object, action, None, wait, timeout, status=status)

    run.__name__, run.__doc__ = action, about
    return on_server(run)


for _action, _about in SIMPLE.items():
    app.command(_action)(_simple(_action, _about))


@app.command()
@on_server
def delete(
    session: Session, object: Thing, permanently: Permanently = False, wait: Wait = False, timeout: Timeout = None
) -> None:
    """Move something to the recycle bin; or destroy it."""
    params = {"permanently": str(permanently).lower()}
    _finish(session, _ask(session, "DELETE", _path(session, object), params=params), wait, timeout)


@app.command()
@on_server
def attach(session: Session, machine: Machine, disk: Disk, wait: Wait = False, timeout: Timeout = None) -> None:
    """Attach a disk to a machine."""
    _do(session, machine, "attach", {"disk": _id(session, disk)}, wait, timeout)


@app.command()
@on_server
def detach(session: Session, machine: Machine, disk: Disk, wait: Wait = False, timeout: Timeout = None) -> None:
    """Detach a disk from a machine."""
    _do(session, machine, "detach", {"disk": _id(session, disk)}, wait, timeout)


@app.command("add-disk")
@on_server
def add_disk(
    session: Session, machine: Machine, name: Name, gib: Gib = 1, wait: Wait = False, timeout: Timeout = None
) -> None:
    """Make a disk for a machine, and attach it."""
    _do(session, machine, "disks", {"name": name, "gib": gib}, wait, timeout)


@app.command()
@on_server
def clone(session: Session, machine: Machine, name: Name, wait: Wait = False, timeout: Timeout = None) -> None:
    """Clone a machine that is halted."""
    _do(session, machine, "clone", {"name": name}, wait, timeout)


@app.command()
@on_server
def migrate(session: Session, machine: Machine, node: To = None, wait: Wait = False, timeout: Timeout = None) -> None:
    """Move a machine to another node while it runs."""
    body = {} if node is None else {"node": _id(session, node)}
    _do(session, machine, "migrate", body, wait, timeout)


@app.command()
@on_server
def maintenance(
    session: Session, node: Node, vmaction: VmAction = "move", wait: Wait = False, timeout: Timeout = None
) -> None:
    """Put a node in maintenance: its machines are moved away, or stopped; they come back when it is enabled."""
    _do(session, node, "maintenance", {"vmaction": vmaction}, wait, timeout)


# --- what they share -------------------------------------------------------------------------------------------------


def _id(session: Session, named: str) -> str:
    """Return the id of an object that is named by it, or by its kind and name."""
    kind, _, name = named.partition("/")
    if not name:
        return named
    if kind not in PATHS:
        raise BadInput("object", named, f"an id, or KIND/NAME with a kind of {', '.join(PATHS)}")
    chosen = ObjectSelector(kind=f"ovc.{KINDS.get(kind, kind)}", labels={"name": name})
    found = [one.id for one in session.client.objects(session.ns, chosen) if one.state not in FINAL]
    if len(found) != 1:
        raise BadInput(
            "object", named, "the name of one that exists" if not found else f"unambiguous: one of {', '.join(found)}"
        )
    return found[0]


def _path(session: Session, named: str) -> str:
    """Return the path of an object; its id tells of what kind it is."""
    id_ = _id(session, named)
    kind = id_.partition("-")[0]
    if kind not in PATHS:
        raise BadInput("object", named, "the id of an object of this domain, or KIND/NAME")
    return f"/{PATHS[kind]}/{id_}"


def _at(session: Session, path: str) -> str:
    return f"/ovc/{session.ns}{path}"


def _ask(session: Session, method: str, path: str, body: object = None, params: Params = NOTHING) -> OvcAcceptedView:
    headers, where = idempotency_headers(), _at(session, path)
    return session.client.http.call(OvcAcceptedView, method, where, body=body, headers=headers, params=params)


def _make(session: Session, things: str, body: object, wait: bool, timeout: float | None) -> None:
    _finish(session, _ask(session, "POST", f"/{things}", body), wait, timeout)


def _do(
    session: Session,
    named: str,
    action: str,
    body: object,
    wait: bool,
    timeout: float | None,
    *,
    status: str | None = None,
) -> None:
    path = f"{_path(session, named)}/{action}"
    _finish(session, _ask(session, "POST", path, body, {"status": status}), wait, timeout)


def _finish(session: Session, asked: OvcAcceptedView, wait: bool, timeout: float | None) -> None:
    session.wait, session.timeout = wait, timeout
    finish_requests(session, [read_outcome(session, asked.object.id, asked.operation)])
