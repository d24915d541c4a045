import sys
from typing import Any

import pytest

from stateward.client.output_formats import (
    OutputFormat,
    parse_output,
    parse_path,
    print_data,
    print_data_line,
    values_at,
)
from stateward.errors import BadInput, UnknownName
from tests.unit.cli.sample_records import sample_object, sample_operation

ROWS = [{"id": "a", "labels": {"x.y": "1"}, "sizes": [3, 4]}, {"id": "b", "labels": {}, "sizes": []}]


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("[*].id", ["a", "b"]),
        ("{[*].id}", ["a", "b"]),
        ("$[0].id", ["a"]),
        ("[-1].id", ["b"]),
        ("[7].id", []),
        ('[*].labels["x.y"]', ["1", None]),
        ("[*].sizes[*]", [3, 4]),
        ("[0].labels[*]", ["1"]),
        (".", [ROWS]),
        ("", [ROWS]),
    ],
)
def test_a_path_leads_to_values(path: str, values: list[Any]) -> None:
    assert values_at(ROWS, parse_path(path)) == values


def test_a_field_that_no_value_has_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="did you mean 'sizes'"):
        values_at(ROWS, parse_path("[*].size"))
    with pytest.raises(BadInput, match="neither a list nor an object"):
        values_at(ROWS, parse_path("[0].id[*]"))


@pytest.mark.parametrize("path", ["[", "[x]", "a..b", "a b", "[?(@.id)]"])
def test_a_path_that_cannot_be_read_is_refused(path: str) -> None:
    with pytest.raises(BadInput, match="must be a path such as"):
        parse_path(path)


def test_a_format_is_known_or_refused() -> None:
    assert parse_output(None) == OutputFormat("table")
    assert parse_output(None, as_json=True) == parse_output("json", as_json=True) == OutputFormat("json")
    assert parse_output("jsonpath=.a[0]") == OutputFormat("jsonpath", ("a", 0))
    with pytest.raises(UnknownName, match="did you mean 'yaml'"):
        parse_output("yml")
    with pytest.raises(BadInput, match="left out where --json is given"):
        parse_output("yaml", as_json=True)


def test_names_are_kinds_and_ids_of_objects_and_ids_of_operations(capsys: pytest.CaptureFixture[str]) -> None:
    one = sample_object(id="m1", kind="mci.vm")
    operation = sample_operation(id="op1")
    print_data(OutputFormat("name"), [one, {"object": one, "operation": operation}, operation, {"name": "n"}])
    assert capsys.readouterr().out.split() == ["mci.vm/m1", "mci.vm/m1", "op1", "n"]
    with pytest.raises(BadInput, match="has no names"):
        print_data(OutputFormat("name"), {"total": 3})


def test_yaml_keeps_the_order_and_the_types(capsys: pytest.CaptureFixture[str]) -> None:
    print_data(OutputFormat("yaml"), {"b": "no", "a": [1, None], "t": "2026-01-31"})
    assert capsys.readouterr().out == "b: 'no'\na:\n- 1\n- null\nt: '2026-01-31'\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("json", '{"a":"x"}\n'), ("yaml", "---\na: x\n"), ("jsonpath=.a", "x\n"), ("jsonpath=.", '{"a":"x"}\n')],
)
def test_one_of_many_results_is_one_line_or_document(text: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_data_line(parse_output(text), {"a": "x"})
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("text", ["json", "yaml", "name", "jsonpath=[*].id"])
def test_nothing_that_a_terminal_would_obey_is_printed_on_one_and_a_pipe_gets_it_as_it_is(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": "a\x1b]0;owned\x07\x9b2Jb\tc"}]
    print_data(parse_output(text), rows)
    for_program = capsys.readouterr().out
    assert "\x9b" in for_program or text == "yaml"  # which escapes it
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    print_data(parse_output(text), rows)
    shown = capsys.readouterr().out
    assert not {one for one in shown if not one.isprintable()} - {"\n", "\t"}
    assert "owned" in shown
