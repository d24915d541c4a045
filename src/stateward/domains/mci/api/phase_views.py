"""Views of the phases of post-commands, and of their results."""

from collections.abc import Iterable, Sequence
from math import ceil

from stateward.domains.mci import model
from stateward.domains.mci.api.schemas import PostPhaseOutput, PostPhaseResult, PostPhaseView, RemoteResult
from stateward.domains.mci.lifecycle import MCI
from stateward.lifecycle import TRANSITIONAL
from stateward.store.records import Object

NONE, RUNNING, SKIPPED = "None", "Running", "Skipped"
COMPLETED, WITH_ERRORS, FAILED = "Completed", "CompletedWithErrors", "Failed"


def phase_views(wanted: model.MciSpec) -> list[PostPhaseView]:
    """Return the phases of an MCI."""
    return [
        PostPhaseView(
            phase.user,
            list(phase.commands),
            ceil(phase.minutes),
            phase.choice.group,
            phase.choice.vm,
            _labels(phase.choice),
            phase.go_on,
        )
        for phase in wanted.post_phases
    ]


def phase_results(mci: str, seen: model.MciSeen, vms: Sequence[Object]) -> list[PostPhaseResult]:
    """Return the results of the phases that the latest creation of VMs has run."""
    addresses = {model.vm_of(vm).name: model.vm_seen(vm).public_ip for vm in vms} if seen.phases else {}
    return [
        PostPhaseResult(
            number,
            _target(phase.command.choice),
            _status(phase),
            PostPhaseOutput(
                [
                    remote_result(
                        mci,
                        name,
                        addresses.get(name, ""),
                        phase.command.commands,
                        (model.CommandRun(runs),) if isinstance(runs, str) else runs,
                        phase.failed.get(name, ""),
                    )
                    for name, runs in sorted(phase.results.items())
                ]
            ),
        )
        for number, phase in enumerate(seen.phases, 1)
    ]


def post_command_status(mci: Object, wanted: model.MciSpec, seen: model.MciSeen) -> str:
    """Return the status of all post-commands of an MCI together."""
    asked = wanted.post_command is not None or wanted.post_phases or seen.phases
    if asked and MCI.state(mci.state).state_class is TRANSITIONAL:
        return RUNNING
    each = [_status(phase) for phase in seen.phases]
    if seen.results:
        each.append(_outcome(len(seen.results), len(seen.failed)))
    if not each:
        return NONE
    return each[0] if len(set(each)) == 1 else WITH_ERRORS if set(each) & {COMPLETED, WITH_ERRORS} else FAILED


def _status(phase: model.PhaseSeen) -> str:
    return _outcome(len(phase.results), len(phase.failed)) if phase.ran else SKIPPED


def _outcome(vms: int, failed: int) -> str:
    """Return the outcome of commands; one without a VM has failed."""
    return FAILED if failed >= vms else WITH_ERRORS if failed else COMPLETED


def _target(choice: model.VmChoice) -> str:
    words = {"nodeGroupId": choice.group, "nodeId": choice.vm, "labelSelector": _labels(choice)}
    return ",".join(f"{name}={value}" for name, value in words.items() if value)


def _labels(choice: model.VmChoice) -> str:
    return ",".join(f"{name}={value}" for name, value in choice.labels.items())


def remote_result(
    mci: str, vm: str, address: str, commands: Iterable[str], runs: Sequence[model.CommandRun], error: str
) -> RemoteResult:
    """Return what commands have printed on a VM; those that did not run have printed nothing."""
    asked = {str(number): line for number, line in enumerate(commands)}
    ran = {str(number): run for number, run in enumerate(runs)}
    return RemoteResult(
        mci_id=mci,
        vm_id=vm,
        vm_ip=address,
        command=asked,
        stdout={number: ran.get(number, model.CommandRun()).stdout_text for number in asked},
        stderr={number: ran.get(number, model.CommandRun()).stderr_text for number in asked},
        exit_status={number: run.status for number, run in ran.items() if run.status is not None},
        error=error,
    )
