"""Figures as records: printed, kept, compared; and the pages that are written from them are what is kept."""

import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import __main__ as program
from bench import kept, page
from bench.engine import throughput
from bench.engine.turns import Result, WorkloadSpec
from bench.engine.workload import RoundResult
from bench.figures import Better, Figure, gain, plain, ratio, shown
from bench.kept import TOLERANCE, Change, Circumstances, Kept, Run, changes

WHERE = Circumstances("2026-01-01", "abc", 2, "Linux x86_64", "CPython 3.11", 0.5, {"peer": "1.2"})
VALUES = st.floats(0.001, 1e6)


def one_run(*figures: Figure) -> Kept:
    return Kept({"decide": Run(WHERE, figures)})


# --- records ---------------------------------------------------------------------------------------------------------


def test_a_figure_prints_what_it_is_times_what_and_whether_its_target_is_met() -> None:
    line = str(gain("ours", 4.321, "the speed of theirs", 2))
    assert line.strip() == "4.32 x the speed of theirs: ours   (target at least 2)"
    assert str(ratio("ours", 2, "the time of theirs", 1.5)).endswith("(target at most 1.5, missed)")
    assert str(plain("a start", 12.0, "ms")).strip() == "12.00 ms: a start"


@pytest.mark.parametrize(("value", "text"), [(0, "0.00"), (0.0123, "0.012"), (0.5, "0.50"), (123456.7, "123,457")])
def test_a_value_is_shown_with_as_many_digits_as_can_be_trusted(value: float, text: str) -> None:
    assert shown(value) == text


def test_what_is_kept_is_read_as_it_was(tmp_path: Path) -> None:
    found = one_run(gain("a", 2, "b", 1), plain("c", 3, "ms"))
    kept.save(found, tmp_path / "figures.json")
    assert kept.load(tmp_path / "figures.json") == found


def test_a_benchmark_that_found_nothing_keeps_its_rows() -> None:
    found = one_run(gain("a", 2, "b"))
    assert found.with_run("decide", Run(WHERE, ())) == found


def test_the_circumstances_name_no_host() -> None:
    assert socket.gethostname() not in str(kept.circumstances("decide"))


# --- comparing -------------------------------------------------------------------------------------------------------


@given(VALUES, st.floats(0.1, 10), st.sampled_from(Better))
def test_a_ratio_is_worse_if_it_went_the_wrong_way_by_more_than_a_fifth(was: float, by: float, better: Better) -> None:
    before, now = Figure("a", was, "b", better), Figure("a", was * by, "b", better)
    wrong = by > TOLERANCE if better is Better.LOWER else by * TOLERANCE < 1
    assert Change("x", before, now).worse == wrong or abs(max(by, 1 / by) - TOLERANCE) < 1e-9


def test_plain_figures_are_compared_with_nothing() -> None:
    before, now = one_run(plain("a", 1, "s")), one_run(plain("a", 100, "s"))
    assert list(changes(before, now)) == []


def test_a_ratio_that_is_not_measured_any_more_is_told_and_is_no_regression() -> None:
    (change,) = changes(one_run(ratio("a", 1, "b")), one_run(ratio("other", 1, "b")))
    assert "was not measured now" in str(change)
    assert not change.worse


def test_compare_shows_every_regression_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept.save(one_run(ratio("slower", 1.0, "b"), gain("faster", 1.0, "b")), tmp_path / "kept.json")
    kept.save(one_run(ratio("slower", 1.3, "b"), gain("faster", 1.3, "b")), tmp_path / "now.json")
    with pytest.raises(SystemExit) as ended:
        program.main(["compare", "--store", str(tmp_path / "kept.json"), "--with", str(tmp_path / "now.json")])
    assert ended.value.code == 1
    assert [line[:1] for line in capsys.readouterr().out.splitlines()] == ["!", " ", "2"]


def test_compare_is_content_with_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    program.main(["compare", "--with", str(kept.FILE)])
    assert "0 worse" in capsys.readouterr().out


# --- running ---------------------------------------------------------------------------------------------------------


def test_a_run_of_one_benchmark_renews_its_rows_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "figures.json"
    other = Run(WHERE, (gain("kept", 7, "b"),))
    kept.save(Kept({"decide": Run(WHERE, (gain("old", 1, "b"),)), "memory": other}), store)
    found: list[object] = ["a title", gain("new", 2, "b")]
    bench = ModuleType("bench.decide")
    bench.report = lambda: found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bench.decide", bench)
    program.main(["decide", "--store", str(store)])
    runs = kept.load(store).runs
    assert [one.name for one in runs["decide"].figures] == ["new"]
    assert runs["memory"] == other


# --- pages -----------------------------------------------------------------------------------------------------------


def test_the_page_is_what_is_kept() -> None:
    assert page.PAGE.read_text("utf-8") == page.page(kept.load())


def test_the_figures_of_the_readme_are_what_is_kept() -> None:
    text = page.README.read_text("utf-8")
    assert page.with_short(text, kept.load()) == text


NOT_MEASURED = {"the speed of Procrastinate", "the speed of DBOS"}
"""The README says so where no figure was measured with equal work for all."""


def test_every_figure_of_the_readme_is_one_that_its_benchmark_finds() -> None:
    for bench, run in kept.load().runs.items():
        missing = set(page.HEADLINES.get(bench, ())) - {one.key for one in run.figures}
        assert {of for _, of in missing} <= NOT_MEASURED, bench


def test_the_readme_names_every_target_that_is_missed_and_every_figure_that_is_not_measured() -> None:
    missed, met = gain("slow", 1, "the speed of a peer", 2), gain("a guarded decision", 4, "the speed of automaton", 2)
    text = page.short(one_run(missed, met))
    assert "Targets that are missed, of all figures: slow: 1.00 times the speed of a peer (at least 2)." in text
    assert "| a guarded decision | 4.00 | the speed of automaton | at least 2 | abc |" in text
    assert "| a guarded decision | not measured | the speed of transitions |" in text


def test_all_engines_do_the_same_number_of_actions_in_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[WorkloadSpec] = []

    def run_in_turns(specs: Sequence[WorkloadSpec], rounds: int) -> list[Result]:
        measured.extend(specs)
        return [Result(spec, (RoundResult(1.0, 1.0, 1),) * rounds) for spec in specs]

    monkeypatch.setattr(throughput, "run_in_turns", run_in_turns)
    monkeypatch.setattr(throughput, "new_database", lambda: "")
    monkeypatch.setattr(throughput, "new_file", lambda: "")
    monkeypatch.setattr(throughput, "filled", lambda database, _: database)
    throughput.report()
    assert {"pgqueuer", "Procrastinate", "DBOS"} <= {spec.name for spec in measured}
    assert {spec.amount for spec in measured} == {throughput.ACTIONS}


def test_every_figure_names_a_commit_of_this_history() -> None:
    git = ("git", "-C", str(kept.ROOT))
    shallow = subprocess.run(
        [*git, "rev-parse", "--is-shallow-repository"], capture_output=True, text=True, check=False
    )
    if shallow.stdout.strip() != "false":
        pytest.skip("needs the whole history of a clone")
    for bench, run in kept.load().runs.items():
        commit = run.circumstances.commit.removeprefix("before ").removesuffix(", changed")
        done = subprocess.run([*git, "merge-base", "--is-ancestor", commit, "HEAD"], capture_output=True, check=False)
        assert done.returncode == 0, (bench, commit)


def test_every_figure_has_a_name_of_its_own() -> None:
    for run in kept.load().runs.values():
        keys = [(one.key, one.unit) for one in run.figures]
        assert len(keys) == len(set(keys))
