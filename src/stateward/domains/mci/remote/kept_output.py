"""Output of commands that is kept with the results, and its limits.

A hundred commands may write on a hundred VMs, and all of it together has no limit. So a VM sends no more of each output
than is kept, and the limit of all VMs applies as each VM ends: an operation never holds much more than its record may.
"""

from msgspec.structs import replace

from stateward.domains.mci.model import CommandRun, VmCommandResult

MAX_VM_OUTPUT_CHARS, MIN_COMMAND_OUTPUT_CHARS, MAX_TOTAL_OUTPUT_CHARS = 65_536, 500, 4_000_000
"""Limits of stored output in characters: of each stream per VM, per command at least, and for all VMs."""


class KeptOutput:
    """The limits of the output of one operation, and how much of them is left."""

    def __init__(self, vms: int, commands: int, phases: int = 1) -> None:
        per_vm = min(MAX_VM_OUTPUT_CHARS, MAX_TOTAL_OUTPUT_CHARS // max(1, vms))
        self._most = max(MIN_COMMAND_OUTPUT_CHARS, per_vm // phases // max(1, commands))
        self._left = MAX_TOTAL_OUTPUT_CHARS // phases
        self.stream_bytes = self._most  # how much of each stream of a command a VM sends

    def keep(self, result: VmCommandResult) -> VmCommandResult:
        """Return the result of a VM that has ended, with as much of its output as the limits have left."""
        kept = with_limited_output(result, self._most)
        if _size_of(kept) > self._left:
            kept = with_limited_output(result, self._left // max(1, 2 * len(result.runs)))
        self._left = max(0, self._left - _size_of(kept))
        return kept


def _size_of(result: VmCommandResult) -> int:
    return len(result.error) + sum(len(run.written) + len(run.stderr) for run in result.runs)


def with_limited_output(result: VmCommandResult, most: int) -> VmCommandResult:
    """Return a result whose texts have limited lengths; an error keeps what is needed to understand it."""
    runs = tuple(with_limited_run(run, most) for run in result.runs)
    kept, cut = tail_of(result.error, max(most, MIN_COMMAND_OUTPUT_CHARS))
    return replace(result, runs=runs, error=f"({cut} bytes left out)\n{kept}" if cut else kept)


def with_limited_run(run: CommandRun, most: int) -> CommandRun:
    """Return the ends of both outputs of a command; what is left out now is added to what was left out before."""
    written, written_cut = tail_of(run.written, most)
    stderr, stderr_cut = tail_of(run.stderr, most)
    cuts = {"written_cut": run.written_cut + written_cut, "stderr_cut": run.stderr_cut + stderr_cut}
    return replace(run, written=written, stderr=stderr, **cuts)


def tail_of(text: str, most: int) -> tuple[str, int]:
    """Return the end of a text that is too long, and how many bytes are left out before it: errors come last."""
    start = max(0, len(text) - most)
    return text[start:], len(text[:start].encode(errors="replace"))
