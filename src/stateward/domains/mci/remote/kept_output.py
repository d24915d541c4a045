"""Output of commands that is kept with the results, and its limits.

A hundred commands may write on a hundred VMs, and all of it together has no limit. So a VM sends no more of each output
than is kept, and the limit of all VMs applies as each VM ends: an operation never holds much more than its record may.
"""

from msgspec.structs import replace

from stateward.domains.mci.model import VmCommandResult

MAX_VM_OUTPUT_CHARS, MIN_COMMAND_OUTPUT_CHARS, MAX_TOTAL_OUTPUT_CHARS = 65_536, 500, 4_000_000
"""Limits of stored output in characters: of each stream per VM, per command at least, and for all VMs."""

NOTE_CHARS = 64
"""Space for the note about the part that a VM has not sent."""


class KeptOutput:
    """The limits of the output of one operation, and how much of them is left."""

    def __init__(self, vms: int, commands: int, phases: int = 1) -> None:
        per_vm = min(MAX_VM_OUTPUT_CHARS, MAX_TOTAL_OUTPUT_CHARS // max(1, vms))
        self._most = max(MIN_COMMAND_OUTPUT_CHARS, per_vm // phases // max(1, commands))
        self._left = MAX_TOTAL_OUTPUT_CHARS // phases
        self.stream_bytes = self._most - NOTE_CHARS  # how much of each stream of a command a VM sends

    def keep(self, one: VmCommandResult) -> VmCommandResult:
        """Return the result of a VM that has ended, with as much of its output as the limits have left."""
        kept = with_limited_output(one, self._most)
        if _size_of(kept) > self._left:
            kept = with_limited_output(one, self._left // max(1, 2 * len(one.runs)))
        self._left = max(0, self._left - _size_of(kept))
        return kept


def _size_of(one: VmCommandResult) -> int:
    return len(one.error) + sum(len(run.written) + len(run.stderr) for run in one.runs)


def with_limited_output(one: VmCommandResult, most: int) -> VmCommandResult:
    """Return a result whose texts have limited lengths; an error keeps what is needed to understand it."""
    runs = tuple(replace(run, written=tail_of(run.written, most), stderr=tail_of(run.stderr, most)) for run in one.runs)
    return replace(one, runs=runs, error=tail_of(one.error, max(most, MIN_COMMAND_OUTPUT_CHARS)))


def tail_of(text: str, most: int) -> str:
    """Return the end of a text that is too long, with a note about the omitted part: errors come last."""
    left_out = len(text) - most
    return text if left_out <= 0 else f"({left_out} characters left out)\n{text[left_out:]}"
