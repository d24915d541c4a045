from collections.abc import Iterator
from contextlib import contextmanager

from stateward.client.errors import Unreachable
from stateward.client.progress import follow_progress
from tests.unit.cli.sample_records import sample_operation

OPERATION = sample_operation()


def progress(number: int) -> list[str]:
    return [
        f"id: {number}",
        "event: progress",
        f'data: {{"seq": {number}, "at": "", "text": "step {number}", "done": {number}, "total": 3}}',
        "",
    ]


END = ["event: end", "data: {}", ""]


class ScriptedEvents:
    """A server with scripted event streams, one after the other; each heartbeat takes ten seconds."""

    def __init__(self, *streams: list[str] | Exception) -> None:
        self.now = 0.0
        self.opened: list[tuple[str | None, float | None]] = []
        self.said: list[str] = []
        self._streams = list(streams)

    @contextmanager
    def stream_events(self, ns: str, op: str, last: str | None, patience: float | None) -> Iterator[Iterator[str]]:
        self.opened.append((last, patience))
        stream = self._streams.pop(0)
        if isinstance(stream, Exception):
            raise stream
        yield self._played(stream)

    def _played(self, stream: list[str]) -> Iterator[str]:
        for line in stream:
            self.now += 10.0 if line.startswith(":") else 0.0
            yield line

    def narrate(self, timeout: float | None = None) -> list[str]:
        follow_progress(self, OPERATION, self._hear, timeout, clock=lambda: self.now)  # type: ignore[arg-type]
        return self.said

    def _hear(self, words: str, done: int | None, total: int | None) -> None:
        self.said.append(f"{words} ({done}/{total})")


def test_what_is_said_is_passed_on_until_the_end() -> None:
    narrator = ScriptedEvents([*progress(1), ": still there", "", *progress(2), *END, *progress(3)])
    assert narrator.narrate() == ["step 1 (1/3)", "step 2 (2/3)"]


def test_a_broken_stream_ends_the_narration_and_nothing_else() -> None:
    assert ScriptedEvents(Unreachable("http://s", "gone")).narrate() == []
    assert ScriptedEvents([*progress(1), "event: progress", "data: nonsense", ""]).narrate() == ["step 1 (1/3)"]


def test_signs_of_life_do_not_make_the_time_longer() -> None:
    beating = [*progress(1), ": still there", "", *progress(2)]
    narrator = ScriptedEvents(beating, [": still there"], [": still there"], [": still there"])
    assert narrator.narrate(timeout=25.0) == ["step 1 (1/3)"]
    assert narrator.opened == [(None, 25.0), ("1", 15.0), ("1", 5.0)]
