"""Requests for commands and file transfers, and the VMs that they select."""

import re

import msgspec

from stateward.domains.mci.errors import NoTargets
from stateward.domains.mci.guards.spec_validation import check_user
from stateward.domains.mci.lifecycle import COMMAND, VmState
from stateward.domains.mci.model import CommandInput, CommandSpec, VmChoice, VmSpec, is_chosen, record_id, vm_of
from stateward.domains.mci.service import Service
from stateward.engine import Accepted, NotFound
from stateward.engine.typed_values import SHORTEST_SECRET
from stateward.errors import BadInput
from stateward.naming import new_id
from stateward.schemas.caller import Caller

MAX_COMMANDS, MAX_COMMAND_CHARS = 100, 65_536
"""Limits of one request: the number of commands, and all their characters (one argument of a Linux process)."""

MAX_MINUTES = 24 * 60.0
REQUEST_LABEL = "request"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\Z")


async def submit_command(
    service: Service, ns: str, choice: VmChoice, spec: CommandSpec, given: CommandInput, by: Caller, request: str = ""
) -> Accepted:
    """Request a command on the VMs of an MCI; the spec gets their names and uids here, and `request` finds it again."""
    check_command(spec, given)
    vms = await chosen_vms(service, ns, spec.mci, choice)
    chosen = msgspec.structs.replace(spec, vms=tuple(vm.name for vm in vms), uids=tuple(vm.uid for vm in vms))
    return await service.engine.create(
        ns,
        record_id("command", new_id()),
        COMMAND.kind,
        "run",
        spec=chosen,
        args=given,
        labels={"mci": spec.mci} | ({REQUEST_LABEL: request} if request else {}),
        actor=by.actor,
        who=by.who,
    )


async def chosen_vms(service: Service, ns: str, mci: str, choice: VmChoice) -> list[VmSpec]:
    """Return the VMs that a request selects, by name; terminated ones are none of them."""
    await service.mci(ns, mci)
    vms = [vm for vm in await service.vms(ns, mci) if vm.state != VmState.TERMINATED]
    if choice.vm and all(vm_of(vm).name != choice.vm for vm in vms):
        raise NotFound(ns, f"{mci}/{choice.vm}")
    chosen = sorted((vm_of(vm) for vm in vms if is_chosen(vm, choice)), key=lambda spec: spec.name)
    if not chosen:
        raise NoTargets(mci)
    return chosen


def check_command(spec: CommandSpec, given: CommandInput) -> None:
    """Refuse a command that could not run."""
    if not spec.path and not spec.commands:
        raise BadInput("command", None, "a list of at least one command")
    if len(spec.commands) > MAX_COMMANDS or sum(map(len, spec.commands)) > MAX_COMMAND_CHARS:
        allowed = f"at most {MAX_COMMANDS} commands, with at most {MAX_COMMAND_CHARS} characters together"
        raise BadInput("command", f"{len(spec.commands)} commands", allowed)
    for number, command in enumerate(spec.commands):
        if "\0" in command:
            raise BadInput(f"command[{number}]", None, "a text without NUL")
    check_user("userName", spec.user)
    if not 0 < spec.minutes <= MAX_MINUTES:
        raise BadInput("timeoutMinutes", spec.minutes, f"a number above 0, at most {MAX_MINUTES:g}")
    for name, value in given.secrets.items():
        if VARIABLE.match(name) is None:
            raise BadInput("secrets", name, "names of environment variables")
        if len(value) < SHORTEST_SECRET or "\0" in value:
            raise BadInput(f"secrets.{name}", None, f"a text of at least {SHORTEST_SECRET} characters, without NUL")
