"""`stateward ovc ...`: machines, cloudspaces, accounts, disks, images and nodes.

An object is named by its id, or as KIND/NAME: `machine/db`, `node/n1`.
"""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from stateward.client.action_requests import finish_requests, read_outcome
from stateward.client.arguments import ObjectSelector, parse_pairs
from stateward.client.confirmation import confirm_action
from stateward.client.http import NOTHING, Params, idempotency_headers
from stateward.client.session import Session, on_server, requests_action
from stateward.client.url_paths import NamedPart, UrlPath, url_path
from stateward.domains.ovc.api.views import HealingView, ItemView, ObjectQueueView, OvcAcceptedView
from stateward.domains.ovc.cli.views import full_record, healing_view, item_details, item_table, queue_table
from stateward.errors import BadInput

app = typer.Typer(no_args_is_help=True, help="Machines, cloudspaces, accounts, disks, images and nodes.")
create = typer.Typer(no_args_is_help=True, help="Create an object.")
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

ObjectArg = Annotated[str, typer.Argument(metavar="OBJECT", help="An object: its id, or KIND/NAME such as machine/db.")]
MachineArg = Annotated[str, typer.Argument(metavar="MACHINE", help="A machine: its id, or machine/NAME.")]
DiskArg = Annotated[str, typer.Argument(metavar="DISK", help="A disk: its id, or disk/NAME.")]
NodeArg = Annotated[str, typer.Argument(metavar="NODE", help="A node: its id, or node/NAME.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The new object's name.")]
Account = Annotated[str, typer.Option("--account", help="The account, by its id or as account/NAME.")]
Cloudspace = Annotated[str, typer.Option("--cloudspace", help="The cloudspace, by its id or as cloudspace/NAME.")]
Image = Annotated[str, typer.Option("--image", help="The image, by its id or as image/NAME.")]
Gib = Annotated[int, typer.Option("--gib", min=1, help="The size of the disk in GiB.")]
Size = Annotated[str, typer.Option("--size", help="tiny, small, medium, large, or such as 2c512m.")]
Retention = Annotated[
    float, typer.Option("--retention", min=0, help="Days until objects in the recycle bin are destroyed.")
]
Source = Annotated[str, typer.Option("--source", help="The built-in guest, or a file of the library.")]
Driver = Annotated[str, typer.Option("--driver", help="simulated, process or qemu.")]
Options = Annotated[
    list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="A setting of the driver. Repeatable.")
]
Kinds = Annotated[str, typer.Argument(metavar="KINDS", help="accounts, cloudspaces, machines, disks, images or nodes.")]
States = Annotated[str | None, typer.Option("--state", "-s", help="Limit to these states, separated by commas.")]
Permanently = Annotated[bool, typer.Option("--permanently", help="Destroy it for good.")]
ExpectedStatus = Annotated[str | None, typer.Option("--status", help="The state that the object must be in.")]
ToNode = Annotated[str | None, typer.Option("--node", help="The node that it moves to; default: any other.")]
VmAction = Annotated[str, typer.Option("--vmaction", help="What happens to its machines: move or stop.")]
Stop = Annotated[bool, typer.Option("--stop", help="Stop the queue: refuse new actions, and wait until it is drained.")]
Hours = Annotated[float, typer.Option("--hours", min=0, help="Limit to the last N hours.")]

PLAIN_ACTIONS = {
    "deploy": "Deploy a machine or a cloudspace.",
    "start": "Start a machine.",
    "stop": "Stop a machine.",
    "pause": "Pause a machine, or (administrators) a cloudspace.",
    "resume": "Resume a paused machine or cloudspace.",
    "reboot": "Reboot a machine.",
    "reset": "Reset a machine, or (administrators) a cloudspace.",
    "enable": "Enable an account, a cloudspace, an image or a node.",
    "disable": "Disable an account, a cloudspace or an image.",
    "restore": "Restore an object from the recycle bin, with the objects that were deleted with it.",
    "destroy": "Destroy an object for good.",
    "decommission": "Take a node out of service for good; its machines move to other nodes.",
}
FINAL_ACTIONS = ("destroy", "decommission")


# --- queries ---------------------------------------------------------------------------------------------------------


@app.command("list")
@on_server
def list_(session: Session, kinds: Kinds, state: States = None) -> None:
    """List the objects of a kind."""
    if kinds not in PATHS.values():
        raise BadInput("KINDS", kinds, f"one of {', '.join(dict.fromkeys(PATHS.values()))}")
    where, params = _at(session, kinds), {"state": state}
    items = session.client.http.call_pages(list[ItemView], where, lambda item: item.id, params)
    table = item_table(session, items) if items else f"No {kinds} in namespace {session.ns}."
    session.show([full_record(item) for item in items], lambda _: table)


@app.command()
@on_server
def show(session: Session, object: ObjectArg) -> None:
    """Show an object; a node with the report of its latest maintenance, and its orphans."""
    item = session.client.http.call(ItemView, "GET", _at(session, *_parts(session, object)))
    session.show(full_record(item), lambda _: item_details(session, item))


@app.command()
@on_server
def queue(session: Session, object: ObjectArg, stop: Stop = False) -> None:
    """Show the operations of an object's queue; or stop the queue."""
    path = _at(session, "queues", ("object", _id(session, object)))
    answer = session.client.http.call(ObjectQueueView, "DELETE" if stop else "GET", path)
    session.show(answer, lambda view: queue_table(view) if view.exists else f"{view.object} has no queue.")


@app.command()
@on_server
def healing(session: Session, hours: Hours = 24.0) -> None:
    """Show stuck work, recent recoveries by the healer or drift detection, and orphans."""
    params: dict[str, Any] = {"seconds": str(hours * 3600)}
    session.show(session.client.http.call(HealingView, "GET", _at(session, "healing"), params=params), healing_view)


# --- creation --------------------------------------------------------------------------------------------------------


@create.command("account")
@requests_action
def create_account(session: Session, name: Name, retention: Retention = 7.0) -> None:
    """Create an account."""
    _submit(session, "accounts", body={"name": name, "retention": retention * 86_400})


@create.command("cloudspace")
@requests_action
def create_cloudspace(session: Session, name: Name, account: Account) -> None:
    """Create a cloudspace."""
    _submit(session, "cloudspaces", body={"name": name, "account": _id(session, account)})


@create.command("machine")
@requests_action
def create_machine(
    session: Session, name: Name, cloudspace: Cloudspace, image: Image, size: Size = "tiny", gib: Gib = 1
) -> None:
    """Create a machine, and deploy it."""
    body = {"name": name, "cloudspace": _id(session, cloudspace), "image": _id(session, image), "size": size}
    _submit(session, "machines", body={**body, "gib": gib})


@create.command("disk")
@requests_action
def create_disk(session: Session, name: Name, account: Account, gib: Gib = 1) -> None:
    """Create a disk that belongs to no machine."""
    _submit(session, "disks", body={"name": name, "account": _id(session, account), "gib": gib})


@create.command("image")
@requests_action
def create_image(session: Session, name: Name, account: Account, source: Source = "tick") -> None:
    """Create an image."""
    _submit(session, "images", body={"name": name, "account": _id(session, account), "source": source})


@create.command("node")
@requests_action
def create_node(session: Session, name: Name, driver: Driver = "simulated", option: Options = None) -> None:
    """Register a node."""
    options = parse_pairs("option", option or [])
    _submit(session, "nodes", body={"name": name, "driver": driver, "options": options})


# --- actions ---------------------------------------------------------------------------------------------------------


def _plain_command(action: str, about: str) -> Callable[..., None]:
    """Return the command of an action that needs nothing but its object."""

    def run(session: Session, object: ObjectArg, status: ExpectedStatus = None) -> None:
        if action in FINAL_ACTIONS:
            confirm_action(session, action, [_id(session, object)], {})
        _act(session, object, action, status=status)

    run.__name__, run.__doc__ = action, about
    return requests_action(run)


for _action, _about in PLAIN_ACTIONS.items():
    app.command(_action)(_plain_command(_action, _about))


@app.command()
@requests_action
def delete(session: Session, object: ObjectArg, permanently: Permanently = False) -> None:
    """Move an object to the recycle bin; or destroy it."""
    params = {"permanently": str(permanently).lower()}
    confirm_action(session, "destroy" if permanently else "delete", [_id(session, object)], {})
    _submit(session, *_parts(session, object), method="DELETE", params=params)


@app.command()
@requests_action
def attach(session: Session, machine: MachineArg, disk: DiskArg) -> None:
    """Attach a disk to a machine."""
    _act(session, machine, "attach", {"disk": _id(session, disk)})


@app.command()
@requests_action
def detach(session: Session, machine: MachineArg, disk: DiskArg) -> None:
    """Detach a disk from a machine."""
    _act(session, machine, "detach", {"disk": _id(session, disk)})


@app.command("add-disk")
@requests_action
def add_disk(session: Session, machine: MachineArg, name: Name, gib: Gib = 1) -> None:
    """Create a disk for a machine, and attach it."""
    _act(session, machine, "disks", {"name": name, "gib": gib})


@app.command()
@requests_action
def clone(session: Session, machine: MachineArg, name: Name) -> None:
    """Clone a machine that is halted."""
    _act(session, machine, "clone", {"name": name})


@app.command()
@requests_action
def migrate(session: Session, machine: MachineArg, node: ToNode = None) -> None:
    """Move a machine to another node while it runs."""
    _act(session, machine, "migrate", {} if node is None else {"node": _id(session, node)})


@app.command()
@requests_action
def maintenance(session: Session, node: NodeArg, vmaction: VmAction = "move") -> None:
    """Put a node in maintenance: its machines are moved away, or stopped; they return when it is enabled."""
    _act(session, node, "maintenance", {"vmaction": vmaction})


# --- requests --------------------------------------------------------------------------------------------------------


class NoObjectOfName(BadInput):
    """No object of a kind has the given name."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__("object", f"{kind}/{name}", f"the name of a {kind} that exists")
        self.kind, self.name = kind, name

    def __str__(self) -> str:
        return f"there is no {self.kind} {self.name!r}"


def _id(session: Session, named: str) -> str:
    """Return the id of an object that is named by it, or by its kind and name."""
    kind, _, name = named.partition("/")
    if not name:
        return named
    if kind not in PATHS:
        raise BadInput("object", named, f"an id, or KIND/NAME with a kind of {', '.join(PATHS)}")
    chosen = ObjectSelector(kind=f"ovc.{KINDS.get(kind, kind)}", labels={"name": name})
    ids = [record.id for record in session.client.objects(session.ns, chosen) if record.state not in FINAL]
    if not ids:
        raise NoObjectOfName(kind, name)
    if len(ids) > 1:
        raise BadInput("object", named, f"unambiguous: one of {', '.join(ids)}")
    return ids[0]


def _parts(session: Session, named: str) -> tuple[str, NamedPart]:
    """Return the parts of an object's path; its id tells of what kind it is."""
    id_ = _id(session, named)
    kind = id_.partition("-")[0]
    if kind not in PATHS:
        raise BadInput("object", named, "the id of an object of this domain, or KIND/NAME")
    return PATHS[kind], ("object", id_)


def _at(session: Session, *parts: str | NamedPart) -> UrlPath:
    return url_path("ovc", ("namespace", session.ns), *parts)


def _submit(
    session: Session, *parts: str | NamedPart, body: object = None, method: str = "POST", params: Params = NOTHING
) -> None:
    """Submit a request, and print its outcome."""
    headers, where = idempotency_headers(), _at(session, *parts)
    accepted = session.client.http.call(OvcAcceptedView, method, where, body=body, headers=headers, params=params)
    finish_requests(session, [read_outcome(session, accepted.object.id, accepted.operation)])


def _act(session: Session, named: str, action: str, body: object = None, *, status: str | None = None) -> None:
    _submit(session, *_parts(session, named), action, body=body, params={"status": status})
