from collections import Counter
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from stateward.client.formatting import age_text, facts_table, filled_table, operation_details, span_text, utc_text
from stateward.client.output import clean, err, out, results
from stateward.client.progress import ProgressBars, group_of
from stateward.engine.transitions import time_text
from tests.unit.cli.sample_records import sample_operation


@given(st.text())
def test_nothing_that_a_terminal_would_obey_gets_through(text: str) -> None:
    shown = clean(text)
    assert all(one.isprintable() or one == "\n" for one in shown)
    assert not text.isprintable() or shown == text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-3, "0.0 s"), (0.04, "0.0 s"), (3.21, "3.2 s"), (45, "45 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_a_length_of_time_is_rounded_to_what_matters(seconds: float, words: str) -> None:
    assert span_text(seconds) == words


def test_times_are_shown_in_utc() -> None:
    at = datetime(2026, 11, 15, 2, 57, 12, 999, tzinfo=UTC)
    assert utc_text(at) == time_text(at.timestamp()) == "2026-11-15 02:57:12Z"
    assert age_text(at, at + timedelta(minutes=5)) == "5 min"
    assert (utc_text(None), age_text(None)) == ("", "")


@pytest.mark.parametrize("columns", [None, "20"])
def test_a_table_in_a_pipe_cuts_no_name_and_has_no_trailing_spaces(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str | None
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    name = "a_setting_with_a_long_name"
    results().print(filled_table(("setting", "value"), [(name, "1"), ("short", "a value that is longer")]))
    results().print(facts_table([(name, "1"), ("short", "a value that is longer")]))
    shown = capsys.readouterr().out.splitlines()
    assert shown == [line.rstrip() for line in shown]
    assert "…" not in "".join(shown)
    assert sum(name in line for line in shown) == 2 or columns is not None


@pytest.mark.parametrize(
    ("labels", "group"),
    [
        ({"provider": "aws", "region": "eu-1"}, "aws/eu-1"),
        ({"csp": "gcp"}, "gcp"),
        ({"region": "eu-1", "provider": ""}, "eu-1"),
        ({"tier": "web"}, "mci.vm"),
    ],
)
def test_a_bar_is_named_by_provider_and_region_or_else_by_kind(labels: dict[str, str], group: str) -> None:
    assert group_of("mci.vm", labels) == group


def shown_by(console: Console) -> str:
    with ProgressBars(console, Counter({"aws/eu": 2, "gcp": 1})) as bars:
        bars.count_ended("aws/eu", good=False)
        bars.count_ended("gcp", good=True)
        bars.show_text("half way", 1, 2)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_bars_show_what_has_ended_and_what_failed() -> None:
    shown = shown_by(Console(file=StringIO(), force_terminal=True, width=120))
    assert "aws/eu" in shown
    assert "1/2" in shown
    assert shown.endswith("\x1b[?25h") or "\x1b[?25h" in shown  # the cursor is back


def test_bars_say_nothing_where_nobody_looks() -> None:
    assert shown_by(Console(file=StringIO(), force_terminal=False)) == ""


def test_no_name_is_told_with_a_picture_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    out().print("lane:a:b and ovc.vm:RUNNING:", markup=False)
    err().print("lane:a:b and ovc.vm:RUNNING:", markup=False)
    assert capsys.readouterr() == ("lane:a:b and ovc.vm:RUNNING:\n",) * 2


def test_the_traceback_of_an_operation_is_shown_line_by_line_to_who_gets_it() -> None:
    text = StringIO()
    console = Console(file=text, width=100)
    console.print(operation_details(sample_operation(traceback="Traceback:\n  File x\x1b, line 1\nKeyError: 1")))
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    assert lines[-3].split(maxsplit=1) == ["traceback", "Traceback:"]
    assert [line.strip() for line in lines[-2:]] == ["File x\\x1b, line 1", "KeyError: 1"]
    console.print(operation_details(sample_operation()))
    assert text.getvalue().count("traceback") == 1
