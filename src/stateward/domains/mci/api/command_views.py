"""Views of commands on VMs: the results in the form of Tumblebug."""

from stateward.domains.mci.api.schemas import RemoteResult, RemoteResults
from stateward.domains.mci.api.views import sort_key_of
from stateward.domains.mci.model import CommandRun, CommandSpec, VmCommandResult, command_of, command_seen
from stateward.store.records import Object


def remote_results(command: Object, op: str) -> RemoteResults:
    """Return the results of an ended command; where a file was copied, the only command is that."""
    spec, results = command_of(command), command_seen(command).results
    lines = spec.commands or (f"copy {spec.file} to {spec.path}",)
    asked = {str(number): line for number, line in enumerate(lines)}
    return RemoteResults(
        [_result(spec, name, asked, results[name]) for name in sorted(results, key=sort_key_of)], command.id, op
    )


def _result(spec: CommandSpec, vm: str, asked: dict[str, str], result: VmCommandResult) -> RemoteResult:
    runs = {str(number): run for number, run in enumerate(result.runs)}
    return RemoteResult(
        mci_id=spec.mci,
        vm_id=vm,
        vm_ip=result.address,
        command=asked,
        stdout={number: runs.get(number, CommandRun()).stdout_text for number in asked},
        stderr={number: runs.get(number, CommandRun()).stderr_text for number in asked},
        exit_status={number: run.status for number, run in runs.items() if run.status is not None},
        error=result.error,
    )
