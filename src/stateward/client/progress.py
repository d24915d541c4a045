"""Progress on the terminal: a bar for each group of operations, or a line of text for a single one.

Progress goes to standard error, and only to a terminal: a file or a pipe gets the results and nothing else.
"""

# bounded by: one command
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from stateward.client.errors import RequestFailed
from stateward.client.output import clean
from stateward.schemas.operations import OperationView, ProgressView

if TYPE_CHECKING:
    from stateward.client.api import ApiClient


PROVIDERS = ("provider", "csp", "cloud")
REGIONS = ("region", "zone")


class ServerSentEvent(Struct, frozen=True):
    """One event of an SSE stream."""

    name: str
    data: str
    id: str | None = None


@contextmanager
def live_display(console: Console, *, screen: bool = False) -> Iterator[Live]:
    """Show a display that changes; the terminal is restored at the end, also after an error."""
    live = Live(console=console, screen=screen, auto_refresh=False)
    try:
        live.start()
        yield live
    finally:
        live.stop()


def group_of(kind: str, labels: Mapping[str, str]) -> str:
    """Return the name of an object's bar: its provider and region if its labels name them, else its kind."""
    parts = (next((labels[name] for name in names if labels.get(name)), None) for names in (PROVIDERS, REGIONS))
    return "/".join(part for part in parts if part) or kind


class ProgressBars:
    """One bar for each group, while operations end."""

    def __init__(self, console: Console, groups: Counter[str], *, quiet: bool = False) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[said]}", markup=False),
            console=console,
            disable=quiet or not console.is_terminal,
            transient=True,
        )
        self._tasks = {name: self._add(name, total) for name, total in sorted(groups.items())}
        self._bad: Counter[str] = Counter()

    def _add(self, name: str, total: int) -> TaskID:
        return self._progress.add_task(clean(name), total=total, said="")

    def __enter__(self) -> "ProgressBars":
        try:
            self._progress.start()
        except BaseException:  # Ctrl-C may come after the cursor was hidden
            self._progress.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def count_ended(self, group: str, *, good: bool) -> None:
        """Count one operation that has ended."""
        if group not in self._tasks:
            return
        self._bad[group] += not good
        self._progress.advance(self._tasks[group])
        if self._bad[group]:
            self._progress.update(self._tasks[group], said=f"{self._bad[group]} failed")

    def set_level(self, group: str, done: int, total: int, bad: int = 0) -> None:
        """Set the counts of a bar; a new one is added."""
        if group not in self._tasks:
            self._tasks[group] = self._add(group, total)
        said = f"{bad} failed" if bad else ""
        self._progress.update(self._tasks[group], completed=done, total=total, said=said)

    def show_text(self, words: str, done: int | None, total: int | None) -> None:
        """Show the progress text of the only operation."""
        for task in self._tasks.values():
            self._progress.update(task, said=clean(words))
            if done is not None and total is not None:
                self._progress.update(task, completed=done, total=total)


OnProgress = Callable[[str, int | None, int | None], None]
END = "end"
LONGEST_PATIENCE = 3600.0  # the timeout of a socket is limited


def follow_progress(
    client: "ApiClient",
    operation: OperationView,
    on_progress: OnProgress,
    timeout: float | None,
    clock: Callable[[], float] = time.monotonic,
    after: int = 0,
) -> int | None:
    """Pass on the progress events of an operation until it ends or the time is over.

    Progress is only shown. If the stream breaks or is not available, the command waits without it. Returns None at the
    end of the operation, or else the number of the last event, from which another call can go on.
    """
    until = None if timeout is None else clock() + timeout
    try:
        for event in _events(client, operation, until, clock, str(after) if after else None):
            if event.name == END:
                return None
            report = msgspec.json.decode(event.data, type=ProgressView)
            on_progress(report.text, report.done, report.total)
            after = report.seq
    except (RequestFailed, msgspec.MsgspecError):
        pass
    return after


def _events(
    client: "ApiClient",
    operation: OperationView,
    until: float | None,
    clock: Callable[[], float],
    last: str | None = None,
) -> Iterator[ServerSentEvent]:
    """Yield events until the time is over.

    A stream is given up after a silence as long as the time that is left. Every heartbeat would restart that time, so
    with a time limit the stream is opened again after each heartbeat.
    """
    while until is None or clock() < until:
        patience = None if until is None else min(until - clock(), LONGEST_PATIENCE)
        with client.stream_events(operation.ns, operation.id, last, patience) as lines:
            for event in parse_events(lines if until is None else _until_heartbeat(lines)):
                last = event.id or last
                yield event
        if until is None:
            return


def _until_heartbeat(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line.startswith(":"):
            return
        yield line


def parse_events(lines: Iterable[str]) -> Iterator[ServerSentEvent]:
    """Parse the lines of an SSE stream; an event ends with an empty line, and an incomplete last one is dropped."""
    name, data, id_ = "message", list[str](), None
    for line in lines:
        if not line:
            if data:
                yield ServerSentEvent(name, "\n".join(data), id_)
            name, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            id_ = value
