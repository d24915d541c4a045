"""`stateward mci exec`, `ssh`, `copy` and `forget-host-key`: commands and files on VMs, and logins to them."""

import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct, convert

from stateward.client.operation_waiter import OperationWaiter, naming_open_operations
from stateward.client.output import NO, clean, err
from stateward.client.session import Session, on_server
from stateward.client.shared_options import complete_objects
from stateward.client.url_paths import check_part, url_path
from stateward.domains.mci.cli.tumblebug_calls import WIRE, MciReply, VmAccessView, ask
from stateward.domains.mci.shared_schemas import STDERR_MARK
from stateward.errors import BadInput, count_text

if TYPE_CHECKING:
    from stateward.schemas.operations import OperationView

FAILED_EXIT = 255
"""The exit status for a VM on which nothing could be run, as that of `ssh`."""

Target = Annotated[
    str, typer.Argument(metavar="MCI[/VM]", help="An MCI, or one VM of it.", autocompletion=complete_objects)
]
OneVm = Annotated[str, typer.Argument(metavar="MCI/VM", help="A VM of an MCI.", autocompletion=complete_objects)]
Words = Annotated[list[str], typer.Argument(metavar="COMMAND...", help="The command, behind --.")]
More = Annotated[list[str] | None, typer.Argument(metavar="ARGUMENT...", help="Further arguments of ssh, behind --.")]
Source = Annotated[Path, typer.Argument(metavar="FILE", help="The file.")]
Place = Annotated[
    str,
    typer.Argument(metavar="MCI[/VM]:PATH", help="The VMs, and the path there; a folder ends in /, and must exist."),
]
User = Annotated[str | None, typer.Option("--user", "-u", metavar="NAME", help="The user, instead of the VM's own.")]
Subgroup = Annotated[str | None, typer.Option("--group", metavar="GROUP", help="Only VMs of this subgroup.")]
Labels = Annotated[str | None, typer.Option("--label", metavar="NAME=VALUE,...", help="Only VMs with these labels.")]
Minutes = Annotated[
    float, typer.Option("--minutes", min=0.01, metavar="N", help="End it on a VM after this many minutes.")
]
SecretVariables = Annotated[
    list[str] | None,
    typer.Option(
        "--secret", metavar="NAME", help="Pass on this environment variable; its value is masked wherever it appears."
    ),
]
Identity = Annotated[
    Path | None,
    typer.Option("--identity", "-i", metavar="FILE", help="Your private key, for ssh.", show_default="its own"),
]


class CommandRunView(Struct, frozen=True):
    """One command on one VM; of a long output it has the end, and how many bytes are left out before that."""

    written: str = ""
    status: int | None = None
    stderr: str = ""
    written_cut: int = 0
    stderr_cut: int = 0


class VmResultView(Struct, frozen=True):
    """The commands on one VM, and how many bytes of their output were not printed while they ran."""

    runs: list[CommandRunView] = []
    error: str = ""
    unstreamed: int = 0


@on_server
def exec_(
    session: Session,
    target: Target,
    command: Words,
    user: User = None,
    group: Subgroup = None,
    label: Labels = None,
    minutes: Minutes = 30.0,
    secret: SecretVariables = None,
) -> None:
    """Run a command on all VMs of an MCI, or on one; prints what it writes, and exits as it does."""
    mci, vm = _mci_or_vm(target)
    text = command[0] if len(command) == 1 else _joined(command)
    body = {"command": [text], "userName": user or "", "timeoutMinutes": minutes, "secrets": _secrets(secret or [])}
    params = _selection(vm, group, label)
    reply = ask(session, MciReply, "POST", "cmd", "mci", ("MCI", mci), params=params, body=body)
    _follow(session, reply)


@on_server
def copy(
    session: Session, file: Source, place: Place, user: User = None, group: Subgroup = None, label: Labels = None
) -> None:
    """Copy a file to all VMs of an MCI, or to one; it keeps its permissions, and in a folder its name.

    Exits with 1 if it could not be written on some VM, and says why. Folders are not created.
    """
    target, colon, path = place.partition(":")
    if not colon or not path:
        raise BadInput("MCI[/VM]:PATH", place, "an MCI or a VM, a colon, and a path")
    mci, vm = _mci_or_vm(target)
    for field_name, text in (("FILE", file.name), ("MCI[/VM]:PATH", path)):
        if not text.isprintable():  # a form could not carry it
            raise BadInput(field_name, ascii(text), "a name in UTF-8 without control characters")
    try:
        content, mode = file.read_bytes(), stat.S_IMODE(file.stat().st_mode) & 0o777
    except OSError as error:
        raise BadInput("FILE", str(file), f"a file that can be read ({error.strerror})") from error
    params = _selection(vm, group, label)
    where = url_path("ns", ("namespace", session.ns), "transferFile", "mci", ("MCI", mci))
    form = {"path": path, "userName": user or "", "name": file.name, "mode": f"{mode:03o}"}
    reply = session.client.http.upload(MciReply, where, form, (file.name, content), params, WIRE)
    _follow(session, reply, lambda vms: f"Copied to {count_text(vms, 'VM')}.")


@on_server
def forget_host_key(session: Session, target: OneVm) -> None:
    """Forget the pinned host key of a VM that was installed anew: the next one is pinned."""
    mci, vm = _one_vm(target)
    reply = ask(session, MciReply, "DELETE", "mci", ("MCI", mci), "vm", ("VM", vm), "hostKey")
    err().print(clean(reply.message), markup=False, highlight=False)


@on_server
def ssh(session: Session, target: OneVm, arguments: More = None, user: User = None, identity: Identity = None) -> None:
    """Log in to a VM with the `ssh` of this machine and your own key; the host key is checked."""
    from stateward.domains.mci.cli.local_ssh import run_ssh  # other commands start no program

    mci, vm = _one_vm(target)
    access = _access(session, mci, vm)
    bastion = _access(session, mci, access.bastion_vm_id) if access.bastion_vm_id and not access.public_ip else None
    status = run_ssh(f"{session.ns}.{mci}", access, bastion, user, identity, arguments or [])
    raise typer.Exit(status)


def add_to(app: typer.Typer) -> None:
    """Add the commands to those of the domain."""
    app.command("exec")(exec_)
    app.command()(copy)
    app.command()(ssh)
    app.command("forget-host-key")(forget_host_key)


def _access(session: Session, mci: str, vm: str) -> VmAccessView:
    params = {"option": "accessinfo"}
    return convert(
        ask(session, dict[str, object], "GET", "mci", ("MCI", mci), "vm", ("VM", vm), params=params), VmAccessView
    )


def _mci_or_vm(target: str) -> tuple[str, str | None]:
    """Return the MCI and the VM; an empty name of a VM, as from a variable that is not set, never means all VMs."""
    mci, slash, vm = target.partition("/")
    return mci, check_part("VM", vm) if slash else None


def _selection(vm: str | None, group: str | None, label: str | None) -> dict[str, str | None]:
    """Return the parameters that select VMs; the server takes an empty one for none, and none selects all VMs."""
    for option, value in (("--group", group), ("--label", label)):
        if value == "":
            raise BadInput(option, value, "a value, or no option at all")
    return {"async": "true", "vmId": vm, "subGroupId": group, "labelSelector": label}


def _one_vm(target: str) -> tuple[str, str]:
    mci, vm = _mci_or_vm(target)
    if vm is None:
        raise BadInput("MCI/VM", target, "a VM of an MCI, such as shop/web-1")
    return mci, vm


def _joined(words: list[str]) -> str:
    from shlex import join

    return join(words)


def _secrets(names: list[str]) -> dict[str, str]:
    import os

    for name in names:
        if name not in os.environ:
            raise BadInput("--secret", name, "an environment variable that is set")
    return {name: os.environ[name] for name in names}


def _follow(session: Session, reply: MciReply, done_text: Callable[[int], str] | None = None) -> None:
    """Print the output of a command while it runs, and exit as it did.

    A copy writes nothing, so a text tells its end; the exit status of its shell on a VM means nothing to its caller.
    """
    assert reply.operation is not None
    with naming_open_operations(session.ns, {reply.operation: ""}):
        operation = session.client.operation(session.ns, reply.operation)
        if not session.client.has_worker:
            err().print("No server runs on this data folder: the work waits until one does.", style="yellow")
            return
        ended = _print_until_end(session, operation)
        results = _results(session, ended)
    if session.json:
        session.print_data({"operation": ended, "results": results})
    else:
        for name, result in results.items():
            if result.unstreamed:
                text = f"{name}: {result.unstreamed} bytes of its output are left out; a command prints about 1 MB."
                err().print(clean(text), style="yellow", markup=False, highlight=False)
            if result.error:
                err().print(clean(f"{name}: {result.error}"), style="red", markup=False, highlight=False)
    status = exit_status(results, ended.status)
    if done_text is None:
        raise typer.Exit(status)
    if status:
        raise typer.Exit(NO)
    if not session.json:
        _print(done_text(len(results)))


def _print_until_end(session: Session, operation: "OperationView") -> "OperationView":
    """Print the progress of an operation, and return the operation as it has ended; a server may restart meanwhile."""
    from stateward.client.progress import follow_progress

    def follow(after: int) -> int | None:
        return follow_progress(session.client, operation, lambda text, _d, _t: _print(text), None, after=after)

    broken = None if session.json else follow(0)
    (ended,) = OperationWaiter(session.client, session.ns, [operation], pause=session.pause)
    if broken is not None:
        follow(broken)
    return ended


def _print(text: str) -> None:
    """Print lines; those that a VM has written to stderr go there, without their mark."""
    for line in clean(text).split("\n") if text else ():
        name, colon, rest = line.partition(": ")
        if colon and name.endswith(STDERR_MARK):
            sys.stderr.write(f"{name.removesuffix(STDERR_MARK)}: {rest}\n")
        else:
            sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _results(session: Session, operation: "OperationView") -> dict[str, VmResultView]:
    seen = session.client.object(session.ns, operation.object).seen
    return convert(seen.get("results", {}) if isinstance(seen, dict) else {}, dict[str, VmResultView])


def exit_status(results: dict[str, VmResultView], status: str) -> int:
    """Return the exit status for the results of all VMs: the first one that is not 0."""
    for result in results.values():
        failed = next((run.status for run in result.runs if run.status not in (0, None)), None)
        if failed is not None:
            return failed if 0 < failed <= FAILED_EXIT else FAILED_EXIT
        if result.error:
            return FAILED_EXIT
    return 0 if status == "succeeded" else NO
