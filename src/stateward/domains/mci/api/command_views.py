"""Views of commands on VMs: the results in the form of Tumblebug."""

from stateward.domains.mci.api.schemas import RemoteResult, RemoteResults
from stateward.domains.mci.api.views import sort_key_of
from stateward.domains.mci.model import CommandRun, CommandSpec, VmCommandResult, command_of, command_seen
from stateward.store.records import Object


def remote_results(found: Object, op: str) -> RemoteResults:
    """Return the results of an ended command; where a file was copied, the only command is that."""
    spec, results = command_of(found), command_seen(found).results
    lines = spec.commands or (f"copy {spec.file} to {spec.path}",)
    asked = {str(number): line for number, line in enumerate(lines)}
    return RemoteResults(
        [_result(spec, name, asked, results[name]) for name in sorted(results, key=sort_key_of)], found.id, op
    )


def _result(spec: CommandSpec, vm: str, asked: dict[str, str], found: VmCommandResult) -> RemoteResult:
    runs = {str(number): one for number, one in enumerate(found.runs)}
    return RemoteResult(
        mci_id=spec.mci,
        vm_id=vm,
        vm_ip=found.address,
        command=asked,
        stdout={number: runs.get(number, CommandRun()).stdout_text for number in asked},
        stderr={number: runs.get(number, CommandRun()).stderr_text for number in asked},
        exit_status={number: one.status for number, one in runs.items() if one.status is not None},
        error=found.error,
    )
