"""Following logs: whole lines, all of them, however they are cut into parts."""

import pytest

from stateward.domains.systems.backends.port import LogExcerpt
from stateward.domains.systems.cli import commands
from stateward.domains.systems.cli.commands import LogFollower


class Log:
    """A log that grows."""

    def __init__(self) -> None:
        self.text = ""

    def read(self, *, instance: str, after: int, most: int) -> list[LogExcerpt]:
        part = self.text[after : after + most]
        return [LogExcerpt(instance, part, after + len(part))]

    def newest(self) -> LogExcerpt:
        return LogExcerpt("web-0", self.text[-1:], len(self.text))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setattr(commands, "FOLLOWED_BYTES", 7)
    return Log()


def test_lines_are_whole_and_a_burst_is_read_to_its_end(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    follower = LogFollower(log.read)
    log.text = "first\nsec"
    follower.begin(LogExcerpt("web-0", log.text, len(log.text)))
    log.text += "ond\n" + "".join(f"line {number}\n" for number in range(9))
    follower.follow(log.newest())
    lines = ["first", "second", *(f"line {number}" for number in range(9))]
    assert capsys.readouterr().out.splitlines() == [f"web-0  {line}" for line in lines]


def test_a_line_without_an_end_is_shown_once_nothing_follows_it(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    follower = LogFollower(log.read)
    log.text = "name?"
    follower.follow(log.newest())
    assert capsys.readouterr().out == ""
    follower.follow(log.newest())
    assert capsys.readouterr().out == "web-0  name?\n"
