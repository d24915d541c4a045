"""Progress on the terminal: a bar for each group of operations, or a line of words for a single one.

Shown on standard error and only where somebody looks: a file or a pipe gets the results and nothing else.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from stateward.client.output import clean

PROVIDERS = ("provider", "csp", "cloud")
REGIONS = ("region", "zone")


@contextmanager
def picture(console: Console, *, screen: bool = False) -> Iterator[Live]:
    """Show something that changes; however it ends, the terminal is as it was."""
    live = Live(console=console, screen=screen, auto_refresh=False)
    try:
        live.start()
        yield live
    finally:
        live.stop()


def group_of(kind: str, labels: Mapping[str, str]) -> str:
    """Return what an object's bar is called: its provider and region where its labels tell them, else its kind."""
    found = (next((labels[name] for name in names if labels.get(name)), None) for names in (PROVIDERS, REGIONS))
    return "/".join(part for part in found if part) or kind


class Bars:
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

    def __enter__(self) -> "Bars":
        try:
            self._progress.start()
        except BaseException:  # Ctrl-C may come while the first picture is drawn, when the cursor is hidden already
            self._progress.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def ended(self, group: str, *, good: bool) -> None:
        """Count one operation that has ended."""
        if group not in self._tasks:
            return
        self._bad[group] += not good
        self._progress.advance(self._tasks[group])
        if self._bad[group]:
            self._progress.update(self._tasks[group], said=f"{self._bad[group]} failed")

    def level(self, group: str, done: int, total: int, bad: int = 0) -> None:
        """Set a bar to where its group is; one that is new is added."""
        if group not in self._tasks:
            self._tasks[group] = self._add(group, total)
        said = f"{bad} failed" if bad else ""
        self._progress.update(self._tasks[group], completed=done, total=total, said=said)

    def said(self, words: str, done: int | None, total: int | None) -> None:
        """Show what the only operation says of its own progress."""
        for task in self._tasks.values():
            self._progress.update(task, said=clean(words))
            if done is not None and total is not None:
                self._progress.update(task, completed=done, total=total)
