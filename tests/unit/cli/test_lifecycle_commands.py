import json
from xml.etree import ElementTree

import pytest

from stateward.plugin.registry import installed
from tests.integration.server.server_processes import invoke, run


def test_list_names_every_kind() -> None:
    shown = invoke("lifecycle", "list").stdout
    assert all(lifecycle.kind in shown for lifecycle in installed().lifecycles)


def test_list_as_json_is_complete() -> None:
    listed = json.loads(invoke("lifecycle", "list", "--json").stdout)
    assert [one["kind"] for one in listed] == [lifecycle.kind for lifecycle in installed().lifecycles]
    assert all(one["states"] and one["rows"] and one["actors"] for one in listed)


def test_show_knows_all_formats() -> None:
    assert "Suspending" in invoke("lifecycle", "show", "mci.vm").stdout
    assert invoke("lifecycle", "show", "mci.vm", "--format", "mermaid").stdout.startswith("stateDiagram-v2")
    assert "| Running" in invoke("lifecycle", "show", "mci.vm", "--format", "table").stdout
    svg = invoke("lifecycle", "show", "mci.vm", "--format", "svg").stdout
    assert ElementTree.fromstring(svg).tag.endswith("svg")


def test_show_as_json_has_the_rows_in_the_order_of_the_table() -> None:
    shown = json.loads(invoke("lifecycle", "show", "leases.lease", "--json").stdout)
    assert [row["event"] for row in shown["rows"]][:5] == ["create", "start", "end", "update", "delete"]
    assert shown["rows"][3]["to"] == "(back)"


def test_check_of_sound_tables_exits_with_0_and_counts_them() -> None:
    done = invoke("lifecycle", "check", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"checked": [one.kind for one in installed().lifecycles], "faults": []}


def test_explain_says_by_whom_into_what_and_within_what_time() -> None:
    explained = json.loads(invoke("lifecycle", "explain", "mci.vm", "Running", "--json").stdout)
    suspend = next(one for one in explained["allowed"] if one["event"] == "suspend" and not one["needs"])
    assert (suspend["actors"], suspend["target"], suspend["desired"], suspend["within"]) == (
        ["user", "admin"],
        "Suspending",
        "Suspended",
        900.0,
    )
    assert explained["state_class"] == "stable"
    assert "15 min" in invoke("lifecycle", "explain", "mci.vm", "Running").stdout


def test_validate_answers_with_its_exit_code() -> None:
    assert invoke("validate", "ovc.vm", "RUNNING", "PAUSED").returncode == 0
    refused = invoke("validate", "ovc.vm", "HALTED", "PAUSED")
    assert refused.returncode == 1
    assert "RUNNING" in refused.stdout


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (("lifecycle", "show", "mci.vmm"), "mci.vm"),
        (("lifecycle", "explain", "mci.vm", "Runing"), "Running"),
        (("validate", "ovc.vm", "RUNNING", "PAUSE"), "PAUSED"),
    ],
)
def test_an_unknown_name_exits_with_2_and_the_nearest_name(words: tuple[str, ...], nearest: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert nearest in done.stderr
    as_json = run(*words, "--json")
    assert as_json.returncode == 2
    assert json.loads(as_json.stdout)["nearest"] == nearest


@pytest.mark.parametrize("words", [("config",), ("lifecycle", "list"), ("lifecycle", "show", "edge.appinst")])
def test_a_table_in_a_pipe_has_whole_names_and_no_trailing_spaces(words: tuple[str, ...]) -> None:
    shown = run(*words).stdout.splitlines()
    assert shown
    assert not [line for line in shown if line != line.rstrip() or "…" in line]


def test_every_setting_is_listed_with_its_whole_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    listed = [line.split()[0] for line in run("config").stdout.splitlines()[1:]]
    assert listed == [one["name"] for one in json.loads(run("config", "--json").stdout)]


def test_bad_usage_exits_with_2() -> None:
    assert invoke("lifecycle", "show").returncode == 2
    assert invoke("lifecycle", "show", "mci.vm", "--format", "painting").returncode == 2


def test_the_version_is_printed() -> None:
    assert run("--version").stdout.strip()
