"""`stateward mci ...`: create an MCI from a file, show it, control it, scale it and delete it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from stateward.client.action_requests import request_body
from stateward.client.arguments import ObjectSelector, read_source
from stateward.client.confirmation import asks, confirm_action, confirm_group
from stateward.client.errors import ApiError
from stateward.client.formatting import error_text, status_text
from stateward.client.output import NO, clean, err, results
from stateward.client.session import Session, on_server, requests_action
from stateward.client.shared_options import Force, complete_objects
from stateward.client.url_paths import NamedPart, url_path
from stateward.domains.mci.cli import (
    catalogue_commands,
    connection_commands,
    key_commands,
    namespace_commands,
    remote_commands,
    views,
)
from stateward.domains.mci.cli.creation_progress import groups_of, is_watched, wait_until_held, wait_with_progress
from stateward.domains.mci.cli.key_file import private_file, read_public_key
from stateward.domains.mci.cli.tumblebug_calls import (
    MciReply,
    OrphanListing,
    Review,
    UnmarkedListing,
    ask,
    status_of,
    statuses,
)
from stateward.domains.mci.shared_schemas import OrphanTermination
from stateward.errors import BadInput

if TYPE_CHECKING:
    from stateward.schemas.operations import OperationView

app = typer.Typer(no_args_is_help=True, help="Create, show and control groups of VMs over many clouds.")
app.add_typer(connection_commands.app, name="connection")
app.add_typer(catalogue_commands.specs, name="spec")
app.add_typer(catalogue_commands.images, name="image")
remote_commands.add_to(app)
app.add_typer(key_commands.app, name="key")
app.add_typer(namespace_commands.app, name="namespace")


NO_GROUPS: Mapping[str, str] = {}
VM_KIND = "mci.vm"
ORPHAN_SET = 100
"""Orphans that one request terminates; the bar moves after each."""


class Action(StrEnum):
    """The actions on an MCI; the first four also apply to a single VM."""

    SUSPEND = "suspend"
    RESUME = "resume"
    REBOOT = "reboot"
    TERMINATE = "terminate"
    REFINE = "refine"
    RECONCILE = "reconcile"
    CONTINUE = "continue"
    WITHDRAW = "withdraw"


File = Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="The fleet, in YAML; - is standard input.")]
Named = Annotated[str, typer.Argument(metavar="MCI", help="The MCI's name.", autocompletion=complete_objects)]
Target = Annotated[
    str, typer.Argument(metavar="MCI[/VM]", help="An MCI, or one VM of it.", autocompletion=complete_objects)
]
What = Annotated[Action, typer.Argument(metavar="ACTION", help=", ".join(Action))]
Rename = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="The name of the MCI, instead of that in the file.")
]
Hold = Annotated[bool, typer.Option("--hold", help="Stop when all is prepared, until `do continue` or `do withdraw`.")]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="Write the private key that is made for its VMs to this new file."),
]
EncryptFor = Annotated[
    Path | None,
    typer.Option(
        "--encrypt-for",
        metavar="FILE",
        help="With --key: have it encrypted for the RSA public key in this file; `mci key open` opens it.",
    ),
]
Every = Annotated[bool, typer.Option("--all", "-a", help="Show every VM, however many there are.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Ask the providers now for the states of the VMs.")]
Subgroup = Annotated[str, typer.Argument(metavar="GROUP", help="The subgroup.")]
Add = Annotated[int | None, typer.Option("--add", min=1, metavar="N", help="Create this many VMs more.")]
Remove = Annotated[int | None, typer.Option("--remove", min=1, metavar="N", help="Terminate and remove this many VMs.")]
Size = Annotated[
    int | None,
    typer.Option("--size", min=0, metavar="N", help="Create or remove VMs until there are N; 0 removes the subgroup."),
]
First = Annotated[bool, typer.Option("--terminate", help="Terminate its VMs first, and delete it after that.")]
Forget = Annotated[
    bool, typer.Option("--force", help="Remove the records only; machines may remain at providers, and are listed.")
]


From = Annotated[str, typer.Argument(metavar="CONNECTION", help="The connection at which the machines are.")]
Machines = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="The provider's ids of the machines.")]
Joined = Annotated[str, typer.Option("--group", metavar="GROUP", help="The subgroup that they join.")]
Login = Annotated[str, typer.Option("--user", metavar="USER", help="The user of logins, if it is known.")]
OneVm = Annotated[str, typer.Argument(metavar="MCI/VM", help="A VM.", autocompletion=complete_objects)]
At = Annotated[str | None, typer.Option("--connection", metavar="NAME", help="Only at this connection.")]
End = Annotated[bool, typer.Option("--terminate", help="Terminate them.")]


@app.command()
@requests_action
def create(
    session: Session,
    file: File,
    name: Rename = None,
    hold: Hold = False,
    key: KeyFile = None,
    encrypt_for: EncryptFor = None,
) -> None:
    """Create an MCI from a file: networks, security groups and keys first, then its VMs."""
    if encrypt_for is not None and key is None:  # nobody else would ever have it
        raise BadInput("--encrypt-for", str(encrypt_for), "given with --key FILE, for the encrypted private key")
    body = _fleet(file, name)
    if encrypt_for is not None:
        body["encryptFor"] = read_public_key("--encrypt-for", encrypt_for)
    with private_file(key) as save:
        reply = ask(session, MciReply, "POST", "mciDynamic", params={"option": "hold" if hold else None}, body=body)
        save(reply.new_key_pair)
    if hold and session.wait:
        wait_until_held(session, body["name"], reply.operation)
    _finish(session, body["name"], reply, wait=session.wait and not hold)


@app.command()
@on_server
def review(session: Session, file: File, name: Rename = None) -> None:
    """Tell whether the MCI of a file could be created, why not, and what it would cost; nothing is changed."""
    answer = ask(session, Review, "POST", "mciDynamicReview", body=_fleet(file, name))
    session.show(answer, views.review_view)
    if not answer.creation_viable:
        raise typer.Exit(NO)


@app.command("list")
@on_server
def list_(session: Session) -> None:
    """List the MCIs of the namespace."""
    session.show(statuses(session), views.mci_table)


@app.command()
@on_server
def status(session: Session, mci: Named, every: Every = False, fresh: Fresh = False) -> None:
    """Show an MCI with its VMs."""
    shown = status_of(session, mci, fresh=fresh)
    session.show(shown, lambda view: views.mci_view(view, inf if every else views.FEW))


@app.command()
@requests_action
def do(session: Session, action: What, target: Target, force: Force = False) -> None:
    """Request an action on all VMs of an MCI whose states allow it, or on one VM."""
    mci, slash, vm = target.partition("/")
    of_vm: list[str | NamedPart] = ["vm", ("VM", vm)] if slash else []
    params = {"action": action.value, "force": "true" if force else None}
    confirm_action(session, action.value, [f"{mci}.{vm}" if slash else mci], request_body(force, [], {}))
    _finish(session, mci, ask(session, MciReply, "POST", "mci", ("MCI", mci), *of_vm, params=params), wait=session.wait)


@app.command()
@requests_action
def scale(
    session: Session, mci: Named, group: Subgroup, add: Add = None, remove: Remove = None, size: Size = None
) -> None:
    """Grow or shrink a subgroup: --add, --remove or --size."""
    given = {"numVMsToAdd": add, "numVMsToRemove": remove, "size": size}
    body = {field: number for field, number in given.items() if number is not None}
    if len(body) != 1:
        raise BadInput("size", None, "given by exactly one of --add, --remove, --size")
    if size is not None and asks(session):
        chosen = ObjectSelector(kind=VM_KIND, parent=mci, labels={"subgroup": group})
        remove = session.client.count_objects(session.ns, chosen, ["kind"]).total - size
    if remove is not None and remove > 0:
        confirm_action(session, "scale in", [mci], request_body(False, [], {"group": group, "count": remove}))
    reply = ask(session, MciReply, "POST", "mci", ("MCI", mci), "subgroup", ("GROUP", group), body=body)
    _finish(session, mci, reply, wait=session.wait)


@app.command()
@requests_action
def delete(session: Session, mci: Named, terminate: First = False, force: Forget = False) -> None:
    """Delete an MCI whose VMs are all terminated or failed; --terminate terminates the others first."""
    if terminate and force:
        raise BadInput("--force", None, "left out where --terminate is given")
    option = "terminate" if terminate else "force" if force else None
    groups = groups_of(session, mci) if session.wait and is_watched(session) else {}  # the records go with the MCI
    params = {"option": option, "wait": "0" if terminate else None}
    if terminate:
        confirm_action(session, "delete", [mci], request_body(False, ["option=terminate"], {}))
    elif force:
        confirm_group(session, "remove", ObjectSelector(kind=VM_KIND, parent=mci), request_body(True, [], {}))
    reply = ask(session, MciReply, "DELETE", "mci", ("MCI", mci), params=params)
    _finish(session, mci, reply, groups, wait=session.wait)


@app.command()
@requests_action
def adopt(
    session: Session,
    mci: Named,
    connection: From,
    machines: Machines = None,
    group: Joined = "adopted",
    user: Login = "",
) -> None:
    """Adopt machines that others have created into an MCI; without an ID, list the machines that can be adopted."""
    for name in (("MCI", mci), ("CONNECTION", connection), *(("ID", machine) for machine in machines or ())):
        url_path(name)  # refuses what is no name, before anything is sent
    if not machines:
        path = url_path("mci", "ns", ("namespace", session.ns), "unmarked")
        listing = session.client.http.call(UnmarkedListing, "GET", path, params={"connection": connection})
        session.show(listing, views.unmarked_view)
        return
    each = {"name": group, "connectionName": connection, "vmUserName": user}
    body = {"name": mci, "subGroups": [{**each, "cspResourceId": machine} for machine in machines]}
    _finish(session, mci, ask(session, MciReply, "POST", "registerCspVm", body=body), wait=session.wait)


@app.command()
@requests_action
def deregister(session: Session, target: OneVm) -> None:
    """Remove the record of a VM, and leave its machine at the provider as it is; others may adopt it then."""
    mci, slash, vm = target.partition("/")
    if not slash:
        raise BadInput("MCI/VM", target, "a VM of an MCI, such as shop/web-1")
    parts: list[str | NamedPart] = ["mci", ("MCI", mci), "vm", ("VM", vm)]
    confirm_action(session, "deregister", [mci], request_body(False, [], {"vms": [vm]}))
    reply = ask(session, MciReply, "DELETE", "deregisterResource", *parts, params={"wait": "0"})
    _finish(session, mci, reply, wait=session.wait)


@app.command()
@on_server
def orphans(session: Session, connection: At = None, terminate: End = False) -> None:
    """List machines of ours at providers that no record knows; exits with 1 if there are any."""
    listing = session.client.http.call(
        OrphanListing, "GET", url_path("mci", "orphans"), params={"connection": connection}
    )
    if terminate:
        listing = _terminate_orphans(session, listing)
    session.show(listing, lambda shown: views.orphan_view(shown, terminated=terminate))
    if listing.trouble or len(listing.terminated) < len(listing.orphans):
        raise typer.Exit(NO)


def _terminate_orphans(session: Session, listing: OrphanListing) -> OrphanListing:
    """Terminate orphans in sets, each at one connection; a failure does not stop the others."""
    from stateward.client.progress import ProgressBars  # only this command and those that wait need it

    groups = Counter(orphan.connection for orphan in listing.orphans)
    left: dict[str, str] = {}
    with ProgressBars(err(), groups, quiet=session.json) as bars:
        for connection in groups:
            keys = [orphan.key for orphan in listing.orphans if orphan.connection == connection]
            for start in range(0, len(keys), ORPHAN_SET):
                some = keys[start : start + ORPHAN_SET]
                left |= _terminate_set(session, connection, some)
                for key in some:
                    bars.count_ended(connection, good=key not in left)
    terminated = [orphan.key for orphan in listing.orphans if orphan.key not in left]
    return replace(listing, terminated=terminated, left=left)


def _terminate_set(session: Session, connection: str, keys: Sequence[str]) -> dict[str, str]:
    """Terminate some orphans of a connection; returns why some are left."""
    body = {"connection": connection, "keys": keys}
    try:
        path = url_path("mci", "orphans", "terminate")
        return session.client.http.call(OrphanTermination, "POST", path, body=body).left
    except ApiError as problem:
        return dict.fromkeys(keys, str(problem))


# --- shared by commands ----------------------------------------------------------------------------------------------


def _fleet(file: str, name: str | None) -> dict[str, Any]:
    text = read_source("--file", file).decode()
    from stateward.domains.mci.cli.fleet_file import read_fleet  # most commands need no parser

    body = read_fleet(text, file)
    return body if name is None else {**body, "name": name}


def _finish(session: Session, mci: str, reply: MciReply, groups: Mapping[str, str] = NO_GROUPS, *, wait: bool) -> None:
    """Print what a request has started, or how that has ended; `groups` are the groups of VMs on progress bars."""
    operation = None if reply.operation is None else session.client.operation(session.ns, reply.operation)
    if operation is not None and not session.client.has_worker:
        err().print("No server runs on this data folder: the work waits until one does.", style="yellow")
    if operation is not None and wait:  # bars are shown even if it has ended already
        operation = wait_with_progress(session, mci, operation, groups)
    _print(session, mci, reply, operation)
    if operation is not None and operation.status in ("failed", "cancelled"):
        raise typer.Exit(NO)


def _print(session: Session, mci: str, reply: MciReply, operation: "OperationView | None") -> None:
    try:
        shown = status_of(session, mci)
    except ApiError as problem:
        if problem.status != 404:
            raise
        shown = None
    if session.json:
        more = {"skipped": reply.skipped or [], "output": reply.output, "remains": reply.remains, "left": reply.left}
        session.print_data({"mci": shown, "operation": operation, **more})
        return
    console = results()
    console.print(
        f"MCI {clean(mci)} is gone." if shown is None else views.mci_view(shown, views.FEWER),
        markup=False,
        highlight=False,
    )
    if reply.skipped:
        console.print(views.skipped_table(reply.skipped))
    for orphan in reply.left:
        machine = f"{orphan.vm}, key {orphan.key}, native id {orphan.native_id or 'not known'} ({orphan.shown})"
        text = f"At {orphan.connection} there may still be {machine}."
        console.print(clean(text), style="yellow", markup=False, highlight=False)
    if operation is not None:
        console.print(f"{operation.action} ", status_text(operation.status), operation.id, markup=False)
        if operation.error:
            console.print(error_text(operation.error))
