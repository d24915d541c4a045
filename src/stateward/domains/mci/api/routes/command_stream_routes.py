"""The route that follows a command in Tumblebug's form: events of its VMs, their output, and the end.

Tumblebug's map sends a command with `async=true` and follows it by the id of that request. The output of a VM comes
when the command has ended everywhere. Messages end with two line feeds: the map looks for these. The stream ends with
the caller's token, and counts among the operations that the token follows.
"""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from litestar import get
from litestar.params import QueryParameter
from litestar.response import Stream

from stateward.domains.mci.api.context import TumblebugRequest, adds_object_state, mci_in_path
from stateward.domains.mci.api.tumblebug_params import READ, TEXT, Mci, Ns, check_reference
from stateward.domains.mci.lifecycle import COMMAND, CommandState
from stateward.domains.mci.model import CommandSpec, VmCommandResult, command_of, command_seen
from stateward.domains.mci.remote.command_requests import REQUEST_LABEL
from stateward.engine import Engine, NotFound
from stateward.engine.queries import list_all
from stateward.plugin.route_options import follow_operation
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, Operation, Progress

BEAT_S, LONGEST_S = 10.0, 840.0
"""The time between two keep-alives while output arrives, and how long a command is followed."""

Followed = AsyncIterator[Progress | Operation | None]
"""The events of an operation that is followed; the last is the operation, unless the stream has to end early."""

RequestId = Annotated[
    str | None, QueryParameter(name="xRequestId", pattern=TEXT, description="the id of the request for the command")
]


@get("/ns/{ns:str}/stream/cmd/mci/{mci:str}", opt=READ, media_type="text/event-stream")
@adds_object_state(mci_in_path)
async def follow_command(request: TumblebugRequest, ns: Ns, mci: Mci, request_id: RequestId = None) -> Stream:
    """Follow a command by the id of its request: the states of its VMs, and at the end their output."""
    id_ = check_reference("xRequestId", (request_id or "").strip(), needed=True)
    engine = request.service.engine
    chosen = Selector(ns, COMMAND.kind, labels=(("mci", mci), (REQUEST_LABEL, id_)))
    commands = [record async for record in list_all(engine.store.reader, chosen)]
    if not commands:
        raise NotFound(ns, f"{mci}/{id_}")
    command = max(commands, key=lambda record: record.created)
    followed = None if command.op is None else follow_operation(request, Key(ns, command.op))
    return Stream(_lines(engine, command, id_, followed), media_type="text/event-stream")


async def _lines(engine: Engine, command: Object, request: str, followed: Followed | None) -> AsyncIterator[str]:
    spec = command_of(command)
    for vm in spec.vms:
        yield _event("CommandStatus", vm, status=_status(spec, command, request, "Handling"))
    if followed is not None:
        until, beat, end = time.monotonic() + LONGEST_S, time.monotonic(), None
        async for end in followed:
            now = time.monotonic()
            if isinstance(end, Operation) or now >= until:
                break
            if end is None or now >= beat + BEAT_S:
                beat = now
                yield ": the command runs\n\n"
        if not isinstance(end, Operation):
            return
        command = await engine.record(*command.key)
    results = command_seen(command).results
    for vm in spec.vms:
        for line in _output(vm, results.get(vm, VmCommandResult()), spec, command, request):
            yield line
    yield _event("CommandDone", summary=_summary(spec, command))


def _output(vm: str, result: VmCommandResult, spec: CommandSpec, command: Object, request: str) -> list[str]:
    """Return the events of a VM at the end: each line of its output, and its state."""
    streams = [
        (stream, text)
        for run in result.runs
        for stream, text in (("stdout", run.stdout_text), ("stderr", run.stderr_text))
    ]
    lines = [(stream, line) for stream, text in streams for line in text.splitlines()]
    logs = [
        _event("CommandLog", vm, log={"stream": stream, "line": line, "lineNumber": number})
        for number, (stream, line) in enumerate(lines, 1)
    ]
    cancelled = command.state == CommandState.CANCELLED
    word = "Cancelled" if cancelled else "Failed" if result.error or not result.runs else "Completed"
    status = _status(spec, command, request, word) | {
        "completedTime": _time(command.since),
        "elapsedTime": int(command.since - command.created),
        "errorMessage": result.error,
        "stdout": "".join(run.stdout_text for run in result.runs),
        "stderr": "".join(run.stderr_text for run in result.runs),
    }
    return [*logs, _event("CommandStatus", vm, status=status)]


def _status(spec: CommandSpec, command: Object, request: str, word: str) -> dict[str, Any]:
    asked = "\n".join(spec.commands) or f"copy {spec.file} to {spec.path}"
    return {
        "index": 1,
        "xRequestId": request,
        "commandRequested": asked,
        "commandExecuted": asked,
        "status": word,
        "startedTime": _time(command.created),
    }


def _summary(spec: CommandSpec, command: Object) -> dict[str, Any]:
    results = command_seen(command).results
    good = sum(bool(result.runs) and not result.error for result in results.values())
    return {
        "totalNodes": len(spec.vms),
        "completedNodes": good,
        "failedNodes": len(spec.vms) - good,
        "elapsedSeconds": int(command.since - command.created),
        "error": "" if results else command.error or "",
    }


def _event(word: str, vm: str = "", **more: Any) -> str:  # noqa: ANN401 - JSON
    names = {"nodeId": vm, "vmId": vm, "commandIndex": 1} if vm else {}
    event = {"type": word, "timestamp": _time(time.time()), **names, **more}
    return f"data: {msgspec.json.encode(event).decode()}\n\n"


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


ROUTES = (follow_command,)
