"""Routes of commands and file transfers on VMs, of bastions, and of pinned host keys."""

import re
from base64 import b64encode
from typing import Annotated

from litestar import Response, delete, get, post, put
from litestar.datastructures import FormMultiDict, UploadFile
from litestar.params import PathParameter, QueryParameter
from msgspec import Struct

from stateward import naming
from stateward.domains.mci.api.context import AnyResponse, TumblebugRequest, adds_object_state, mci_in_path, vm_in_path
from stateward.domains.mci.api.lenient_json import Fields, parse_flag
from stateward.domains.mci.api.mci_bodies import parse_label_pairs
from stateward.domains.mci.api.operation_replies import OperationReply, wait_for_end
from stateward.domains.mci.api.phase_views import remote_result
from stateward.domains.mci.api.schemas import BastionView, RemoteResults
from stateward.domains.mci.api.tumblebug_params import ACT, READ, TEXT, Mci, Ns, Vm, Wait, normalize_id
from stateward.domains.mci.api.views import sort_key_of
from stateward.domains.mci.model import CommandInput, CommandSpec, VmChoice, command_of, command_seen, vm_id, vm_of
from stateward.domains.mci.remote.command_requests import MAX_MINUTES, submit_command
from stateward.domains.mci.remote.host_key_pins import chosen_bastion, forget_host_key, set_bastion
from stateward.domains.mci.remote.ssh_route import choose_bastion
from stateward.errors import BadInput
from stateward.plugin.route_options import reads
from stateward.store.records import Key, Object

A_COMMAND = {"command": ["uptime"], "userName": "ubuntu", "timeoutMinutes": 5}
LONGEST_WAIT_S = 840.0
"""How long a request waits for its command; it ends before a request does."""

DEFAULT_MINUTES = 30.0
MAX_PATH_CHARS, MAX_NAME_BYTES = 1_000, 255
MODE = re.compile(r"0?[0-7]{3}\Z")

SubGroupOption = Annotated[
    str | None, QueryParameter(name="subGroupId", pattern=TEXT, description="only VMs of this subgroup")
]
VmChoiceOption = Annotated[str | None, QueryParameter(name="vmId", pattern=TEXT, description="only this VM")]
LabelOption = Annotated[
    str | None,
    QueryParameter(
        name="labelSelector", pattern=TEXT, description="only VMs with these labels: `role=web,sys.id=g1-1`"
    ),
]
AsyncOption = Annotated[
    str | None, QueryParameter(name="async", pattern=TEXT, description="`true`: do not wait for the end")
]
BastionVm = Annotated[str, PathParameter(pattern=naming.PATH_PART, description="the VM that is the bastion")]


class RunningCommand(Struct, frozen=True, rename="camel"):
    """The reply to a command that is not waited for; by the id of its request it is followed."""

    message: str
    operation: str
    operation_status: str
    x_request_id: str


@post("/ns/{ns:str}/cmd/mci/{mci:str}", opt=ACT | reads(A_COMMAND), status_code=200)
@adds_object_state(mci_in_path)
async def run_command(
    request: TumblebugRequest,
    ns: Ns,
    mci: Mci,
    group: SubGroupOption = None,
    vm: VmChoiceOption = None,
    labels: LabelOption = None,
    in_background: AsyncOption = None,
    wait: Wait = None,
) -> AnyResponse:
    """Run commands on the VMs of an MCI over SSH, and return their results."""
    limit = 0.0 if parse_flag("async", in_background) else wait
    return await _run(request, ns, mci, _choice(group, vm, labels), limit)


@post("/ns/{ns:str}/cmd/mci/{mci:str}/vm/{vm:str}", opt=ACT | reads(A_COMMAND), status_code=200)
@adds_object_state(vm_in_path)
async def run_command_on_vm(request: TumblebugRequest, ns: Ns, mci: Mci, vm: Vm, wait: Wait = None) -> AnyResponse:
    """Run commands on a VM over SSH, and return their results."""
    return await _run(request, ns, mci, VmChoice(normalize_id(vm)), wait)


async def _run(request: TumblebugRequest, ns: str, mci: str, choice: VmChoice, wait: float | None) -> AnyResponse:
    body = await request.fields()
    spec = CommandSpec(
        mci=mci,
        vms=(),
        commands=body.texts("command", "commands"),
        user=body.text("userName").strip(),
        minutes=body.real("timeoutMinutes", default=0.0, low=0.0, high=MAX_MINUTES) or DEFAULT_MINUTES,
    )
    return await _submit(request, ns, choice, spec, CommandInput(secrets=_secrets(body)), wait)


@post("/ns/{ns:str}/transferFile/mci/{mci:str}", opt=ACT, status_code=200)
@adds_object_state(mci_in_path)
async def copy_file(
    request: TumblebugRequest,
    ns: Ns,
    mci: Mci,
    group: SubGroupOption = None,
    vm: VmChoiceOption = None,
    labels: LabelOption = None,
    in_background: AsyncOption = None,
    wait: Wait = None,
) -> AnyResponse:
    """Copy a file to the VMs of an MCI over SSH: a form with the fields `path` and `file`.

    A field `name` is the exact name of the file (browsers change quotes in that of `file`), and `mode` its permissions.
    """
    form = await _form(request)
    path, file = form.get("path"), form.get("file")
    if not isinstance(path, str) or not 0 < len(path) <= MAX_PATH_CHARS or not path.isprintable():
        raise BadInput("path", None, "the path on the VMs, for a file or a folder")
    if not isinstance(file, UploadFile):
        raise BadInput("file", None, "a file of a form (multipart/form-data)")
    mode = _text(form, "mode")
    if mode and MODE.match(mode) is None:
        raise BadInput("mode", mode, "permissions in octal digits, from 000 to 777")
    spec = CommandSpec(
        mci=mci, vms=(), path=path, file=_name(form, file), mode=mode, user=_text(form, "userName").strip()
    )
    given = CommandInput(content=b64encode(await file.read()).decode())
    limit = 0.0 if parse_flag("async", in_background) else wait
    return await _submit(request, ns, _choice(group, vm, labels), spec, given, limit)


async def _form(request: TumblebugRequest) -> FormMultiDict:
    """Return the form in the body; Litestar decodes a text by the charset that its part names, whichever that is."""
    try:
        return await request.form()
    except (UnicodeError, LookupError):
        raise BadInput("body", None, "a form (multipart/form-data) with texts in UTF-8") from None


def _text(form: FormMultiDict, field: str) -> str:
    value = form.get(field)
    return value if isinstance(value, str) else ""


def _name(form: FormMultiDict, file: UploadFile) -> str:
    """Return the name of a file in a folder; clients may send that of `file` with a path before it."""
    name, field = (_text(form, "name"), "name") if "name" in form else (file.filename.rpartition("/")[2], "file")
    is_long = len(name.encode(errors="replace")) > MAX_NAME_BYTES
    if not name or is_long or not name.isprintable() or "/" in name or name in (".", ".."):
        allowed = f"a file with a name of at most {MAX_NAME_BYTES} bytes, without / and control characters"
        raise BadInput(field, name[:MAX_NAME_BYTES], allowed)
    return name


async def _submit(
    request: TumblebugRequest, ns: str, choice: VmChoice, spec: CommandSpec, given: CommandInput, wait: float | None
) -> AnyResponse:
    accepted = await submit_command(request.service, ns, choice, spec, given, request.caller, request.request_id)
    op = accepted.op.id
    request.link_operation(ns, op)
    seconds = min(LONGEST_WAIT_S, spec.minutes * 60 + 60) if wait is None else wait
    ended = await wait_for_end(request.service.engine, ns, op, seconds) if seconds else None
    if ended is None:
        message = f"The command {accepted.object.id} runs"
        return Response(RunningCommand(message, op, "running", request.request_id), status_code=202)
    command = await request.service.engine.record(ns, accepted.object.id)
    asked, results = command_of(command), command_seen(command).results
    lines = asked.commands or (f"copy {asked.file} to {asked.path}",)
    shown = [
        remote_result(asked.mci, name, results[name].address, lines, results[name].runs, results[name].error)
        for name in sorted(results, key=sort_key_of)
    ]
    return Response(RemoteResults(shown, command.id, op))


def _choice(group: str | None, vm: str | None, labels: str | None) -> VmChoice:
    wanted = parse_label_pairs("labelSelector", labels or "")
    return VmChoice(normalize_id(vm or ""), normalize_id(group or ""), wanted)


def _secrets(body: Fields) -> dict[str, str]:
    raw = body.raw("secrets")
    if raw is None:
        return {}
    if not isinstance(raw, dict) or not all(isinstance(value, str) for value in raw.values()):
        raise BadInput("secrets", None, "an object of texts: environment variables that nobody else sees")
    return {str(name): value for name, value in raw.items()}


# --- ways to VMs -----------------------------------------------------------------------------------------------------


@put("/ns/{ns:str}/mci/{mci:str}/vm/{vm:str}/bastion/{bastion:str}", opt=ACT, status_code=200)
@adds_object_state(vm_in_path)
async def choose_bastion_of_vm(
    request: TumblebugRequest, ns: Ns, mci: Mci, vm: Vm, bastion: BastionVm
) -> OperationReply:
    """Choose the VM through which a VM without a public address is reached."""
    target = await request.service.vm(ns, mci, normalize_id(vm))
    through = await request.service.vm(ns, mci, normalize_id(bastion))
    if through.id == target.id:
        raise BadInput("bastion", bastion, "another VM")
    await _set_bastion(request, target, through.id)
    return OperationReply(f"{vm_of(through).name} is the bastion of {vm_of(target).name}")


@get("/ns/{ns:str}/mci/{mci:str}/vm/{vm:str}/bastion", opt=READ)
@adds_object_state(vm_in_path)
async def get_bastion_of_vm(request: TumblebugRequest, ns: Ns, mci: Mci, vm: Vm) -> list[BastionView]:
    """Return the bastion of a VM, chosen or found; none if there is none."""
    target = await request.service.vm(ns, mci, normalize_id(vm))
    through = choose_bastion(target, await request.service.vms(ns, mci))
    if through is None:
        return []
    return [BastionView(ns, mci, vm_of(through).name, "manual" if chosen_bastion(target) else "auto")]


@delete("/ns/{ns:str}/mci/{mci:str}/bastion/{bastion:str}", opt=ACT, status_code=200)
@adds_object_state(mci_in_path)
async def forget_bastion(request: TumblebugRequest, ns: Ns, mci: Mci, bastion: BastionVm) -> OperationReply:
    """Choose a VM as a bastion no longer."""
    through = vm_id(mci, normalize_id(bastion))
    await request.service.mci(ns, mci)
    for vm in await request.service.vms(ns, mci):
        if chosen_bastion(vm) == through:
            await _set_bastion(request, vm, "")
    return OperationReply(f"{normalize_id(bastion)} is no bastion any more")


async def _set_bastion(request: TumblebugRequest, vm: Object, through: str) -> None:
    caller, store = request.caller, request.service.engine.store
    await store.transact(lambda tx: set_bastion(tx, vm.key, through, caller.actor, caller.who))


@delete("/ns/{ns:str}/mci/{mci:str}/vm/{vm:str}/hostKey", opt=ACT, status_code=200)
@adds_object_state(vm_in_path)
async def forget_host_key_of_vm(request: TumblebugRequest, ns: Ns, mci: Mci, vm: Vm) -> OperationReply:
    """Forget the pinned host key of a VM that was installed anew: the next one is pinned."""
    await request.service.vm(ns, mci, normalize_id(vm))
    key, caller = Key(ns, vm_id(mci, normalize_id(vm))), request.caller
    store = request.service.engine.store
    pinned = await store.transact(lambda tx: forget_host_key(tx, key, caller.actor, caller.who))
    return OperationReply("The host key is forgotten" if pinned else "No host key was pinned")


ROUTES = (
    run_command, run_command_on_vm, copy_file,
    choose_bastion_of_vm, get_bastion_of_vm, forget_bastion, forget_host_key_of_vm,
)  # fmt: skip
