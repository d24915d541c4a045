"""Handlers of commands on VMs: one durable operation runs them on all VMs of a request, or copies a file there.

The run has the id of its operation on each VM, so another worker that continues the operation follows the run there,
and starts nothing twice. A command is for the VMs of its request, and not for later ones of the same
names. Output is streamed as progress in bounded pieces. The results are stored at the end.
"""

import asyncio
from base64 import b64decode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from stateward.aio.supervise import wait_for_event
from stateward.domains.mci import model
from stateward.domains.mci.lifecycle import COMMAND, VmState
from stateward.domains.mci.remote.begun_runs import BegunRuns
from stateward.domains.mci.remote.command_retention import LANE_GROUP, command_lane
from stateward.domains.mci.remote.kept_output import KeptOutput
from stateward.domains.mci.remote.vm_shells import CopyOrder, RunOrder, ShellGroup, VmShells
from stateward.domains.mci.shared_schemas import STDERR_MARK
from stateward.drivers.ssh.remote_run import MAX_OUTPUT_BYTES
from stateward.engine import Ending, Handler, Job, Kind, Route
from stateward.engine.kinds import Guard
from stateward.engine.typed_values import MASK, SHORTEST_SECRET
from stateward.lifecycle import CANCELLED, FAILED
from stateward.store.records import Key, Object, to_json

MAX_CONCURRENT = 100
"""VMs on which one command runs at once."""

STREAM_INTERVAL_S, MAX_PIECE_CHARS, MAX_STREAMED_CHARS = 0.5, 20_000, 1_000_000
"""Streamed output: the interval, the largest piece, and the largest sum; the stored results have their own limits."""

MAX_LINE_CHARS = 5_000
"""The longest streamed line; a longer one, which may never end, is streamed as several."""

END_ALL_TIMEOUT_S = 25.0
MAX_NAMED = 5


class CommandHandlers:
    """The handlers of commands."""

    def __init__(self, shells: VmShells) -> None:
        self._shells = shells

    def kind(self, guard: Guard | None = None) -> Kind:
        """Return the kind of commands with its handler."""
        handler = Handler(self._run, cancelled=self._end_cancelled, args=model.CommandInput)
        made_by = "`stateward mci exec MCI -- COMMAND`"
        return Kind(COMMAND, {"run": handler}, _route, guard=guard, spec=model.CommandSpec, made_by=made_by)

    async def _run(self, job: Job) -> Ending:
        spec, given = model.command_of(job.claim.object), job.args
        began: float = await job.once("began", lambda: _as_step(job.now))
        seconds = spec.minutes * 60 - (job.now - began)
        vms = await self._vms(job, spec)
        mask = SecretMask(given.secrets.values())
        stream = OutputStream(job, len(spec.vms), mask)
        output = KeptOutput(len(spec.vms), len(spec.commands))
        async with self._shells.open(list(vms.values())) as shells:
            if spec.path:
                copied = CopyOrder(b64decode(given.content), spec.path, spec.file, spec.user, seconds, mode=spec.mode)
                work = _copier(shells, copied)
            else:
                order = _order(job, spec, given, seconds, output.stream_bytes)
                work = _runner(shells, order, BegunRuns(job, order.id, spec.vms), stream)
            async with stream.flushing():
                results = await _on_each(spec.vms, vms, work, stream, lambda result: output.keep(_masked(result, mask)))
        return _ending(spec, {name: stream.with_unstreamed(name, result) for name, result in results.items()})

    async def _end_cancelled(self, job: Job) -> Ending:
        """End the processes of a cancelled command on all its VMs."""
        spec = model.command_of(job.claim.object)
        if spec.path:
            return Ending(CANCELLED, error="cancelled: the file may be on some VMs")
        vms, order = await self._vms(job, spec), _order(job, spec, model.CommandInput(), END_ALL_TIMEOUT_S)
        begun = BegunRuns(job, order.id, spec.vms)
        left: dict[str, str] = {}

        async def end(shells: ShellGroup, vm: Object) -> None:
            name = model.vm_of(vm).name
            left[name] = "there was no time to end it"
            left[name] = await shells.end(vm, order, begun)

        async with self._shells.open(list(vms.values())) as shells:
            tasks = [asyncio.ensure_future(end(shells, vm)) for vm in vms.values()]
            if tasks:
                await asyncio.wait(tasks, timeout=END_ALL_TIMEOUT_S)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        unsure = {name: model.VmCommandResult(error=f"it may still run: {why}") for name, why in left.items() if why}
        error = "cancelled" + (f"; it may still run on {_named(sorted(unsure))}" if unsure else "")
        return Ending(CANCELLED, error=error, seen=to_json(model.CommandSeen(unsure)))

    async def _vms(self, job: Job, spec: model.CommandSpec) -> dict[str, Object]:
        """Return the VMs of a command that still exist, by name; later VMs of the same names are none of them."""
        keys = {name: Key(job.ns, model.vm_id(spec.mci, name)) for name in spec.vms}
        stored = await self._shells.engine.store.reader.objects(set(keys.values()))
        present = {name: stored[key] for name, key in keys.items() if key in stored and not stored[key].removed}
        uids = dict(zip(spec.vms, spec.uids, strict=False))
        return {name: vm for name, vm in present.items() if model.vm_of(vm).uid == uids.get(name, model.vm_of(vm).uid)}


async def _as_step(value: float) -> float:
    return value


def _order(
    job: Job, spec: model.CommandSpec, given: model.CommandInput, seconds: float, stream_bytes: int = MAX_OUTPUT_BYTES
) -> RunOrder:
    return RunOrder(job.key.id, spec.commands, spec.user, given.secrets, seconds, stream_bytes=stream_bytes)


VmWork = Callable[[Object], Awaitable[model.VmCommandResult]]
KeepResult = Callable[[model.VmCommandResult], model.VmCommandResult]


def _runner(shells: ShellGroup, order: RunOrder, begun: BegunRuns, stream: "OutputStream") -> VmWork:
    return lambda vm: shells.run(vm, order, stream.add, begun)


def _copier(shells: ShellGroup, order: CopyOrder) -> VmWork:
    return lambda vm: shells.copy(vm, order)


async def _on_each(
    names: Sequence[str], vms: dict[str, Object], work: VmWork, stream: "OutputStream", keep: KeepResult
) -> dict[str, model.VmCommandResult]:
    """Do something on each VM, many at once; a VM that is gone or does not run has an error instead of a result."""
    room, results = asyncio.Semaphore(MAX_CONCURRENT), dict[str, model.VmCommandResult]()

    async def run_on(name: str) -> None:
        async with room:
            vm = vms.get(name)
            if vm is None:
                results[name] = model.VmCommandResult(error="the VM is gone")
            elif vm.state != VmState.RUNNING:
                results[name] = model.VmCommandResult(error=f"the VM is {vm.state}")
            else:
                results[name] = keep(await work(vm))
            stream.done += 1

    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(run_on(name))
    return results


def _ending(spec: model.CommandSpec, results: dict[str, model.VmCommandResult]) -> Ending:
    seen = to_json(model.CommandSeen({name: results[name] for name in spec.vms}))
    failed = [name for name in spec.vms if results[name].error]
    if not failed:
        return Ending(seen=seen)
    first = results[failed[0]].error
    error = f"it failed on {len(failed)} of {len(results)} VMs ({_named(failed)}), on {failed[0]} with: {first}"
    return Ending(FAILED, error=error, seen=seen)


class SecretMask:
    """Masks secrets in a text: a whole one, and each line of one that has several; `longest` is the longest part."""

    def __init__(self, values: Iterable[str]) -> None:
        parts = {part for value in values for part in (value, *value.splitlines()) if len(part) >= SHORTEST_SECRET}
        self._longest_first = sorted(parts, key=len, reverse=True)
        self.longest = max(map(len, parts), default=0)

    def __call__(self, text: str) -> str:
        """Return a text without the secrets."""
        for part in self._longest_first:
            text = text.replace(part, MASK)
        return text

    def find_cut(self, text: str) -> int:
        """Return where a text that goes on can be cut: each secret stays whole, even one that has only begun."""
        cut = len(text) - self.longest
        while cut > 0:
            spans = [text.find(part, max(0, cut - len(part) + 1), cut + len(part) - 1) for part in self._longest_first]
            earlier = min((start for start in spans if start >= 0), default=cut)
            if earlier == cut:
                return cut
            cut = earlier
        return len(text)  # nothing but secrets


def _masked(result: model.VmCommandResult, mask: SecretMask) -> model.VmCommandResult:
    runs = tuple(replace(run, written=mask(run.written), stderr=mask(run.stderr)) for run in result.runs)
    return replace(result, runs=runs, error=mask(result.error))


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def _route(command: Object, _action: str) -> Route:
    return Route(LANE_GROUP, command_lane(command.ns))


class OutputStream:
    """The output of a command on all its VMs, as lines of progress.

    Each line begins with the name of its VM, and those of stderr have a mark behind it.
    """

    def __init__(self, job: Job, total: int, mask: "SecretMask") -> None:
        self._job, self._total, self._mask, self.done = job, total, mask, 0
        self._is_over = asyncio.Event()
        self._lines: list[str] = []
        self._partial: dict[tuple[str, str], str] = {}
        # bounded by: the VMs of one command
        self._left_out: Counter[str] = Counter()  # bytes by VM
        self._told, self._streamed, self._pending = 0, 0, 0

    def add(self, vm: str, stdout: str, stderr: str = "") -> bool:
        """Take what a command has written on a VM, and return whether more of it would be told.

        A line is told when it is complete, or too long to be kept.
        """
        self._add_text((vm, ""), stdout)
        self._add_text((vm, STDERR_MARK), stderr)
        return self._streamed + self._pending < MAX_STREAMED_CHARS

    def _add_text(self, source: tuple[str, str], text: str) -> None:
        *lines, rest = (self._partial.pop(source, "") + text).split("\n")
        for line in lines:
            self._add_line(source, self._mask(line), "\n")
        if len(rest) > MAX_LINE_CHARS + self._mask.longest:
            end = self._mask.find_cut(rest)
            self._add_line(source, self._mask(rest[:end]))
            rest = rest[end:]
        if rest:
            self._partial[source] = rest

    def _add_line(self, source: tuple[str, str], line: str, end: str = "") -> None:
        vm, mark = source
        for start in range(0, max(1, len(line)), MAX_LINE_CHARS):
            if self._streamed + self._pending >= MAX_STREAMED_CHARS:
                self._left_out[vm] += len((line[start:] + end).encode(errors="replace"))
                return
            self._lines.append(f"{vm}{mark}: {line[start : start + MAX_LINE_CHARS]}")
            self._pending += len(self._lines[-1])

    def with_unstreamed(self, vm: str, result: model.VmCommandResult) -> model.VmCommandResult:
        """Return a result that tells how much of the output of its VM is not in this stream."""
        return replace(result, unstreamed=result.unstreamed + self._left_out[vm])

    @asynccontextmanager
    async def flushing(self) -> AsyncIterator[None]:
        """Store the output at intervals, and the rest at the end."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._flush_often())
            yield
            self._is_over.set()

    async def _flush_often(self) -> None:
        while not await wait_for_event(self._is_over, STREAM_INTERVAL_S):
            await self._flush()
        for source, line in self._partial.items():
            self._add_line(source, self._mask(line))
        while self._lines or self._told < self.done:
            await self._flush()

    async def _flush(self) -> None:
        # the next lines, up to the size of a piece; lines that are too many have not been added
        taken, size = 0, 0
        while taken < len(self._lines) and (taken == 0 or size + len(self._lines[taken]) < MAX_PIECE_CHARS):
            size += len(self._lines[taken]) + 1
            taken += 1
        self._pending -= sum(map(len, self._lines[:taken]))
        piece, self._lines = "\n".join(self._lines[:taken]), self._lines[taken:]
        self._streamed += max(len(piece), 1 if taken else 0)
        if piece or self._told < self.done:
            self._told = self.done
            await self._job.progress(piece, self.done, self._total)
