import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.server.telemetry.logs import JsonFormatter, TextFormatter, log_operation, redacted, start_logging
from stateward.store.errors import DatabaseReplaced

TOKEN = "sw_0123456789ab_Zm9v-YmFy_c2VjcmV0c2VjcmV0c2VjcmV0"
SECRET = "Zm9v-YmFy_c2VjcmV0c2VjcmV0c2VjcmV0"
OP = "0123456789abcdef0123456789abcdef"


def record(message: str, *args: object, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("stateward.test", logging.INFO, "file.py", 1, message, args, None)
    vars(made).update(extra)
    return made


def as_json(message: str, *args: object, **extra: Any) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(JsonFormatter().format(record(message, *args, **extra)))
    return line


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """Log into memory, and put everything back afterwards."""
    root, stream = logging.getLogger(), io.StringIO()
    before, level = root.handlers[:], root.level
    start_logging("json", "info", stream)
    yield stream
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    for handler in before:
        root.addHandler(handler)
    root.setLevel(level)


def test_a_line_is_one_json_object_with_time_level_and_message() -> None:
    line = as_json("hello %s", "there")
    assert (line["level"], line["logger"], line["message"]) == ("info", "stateward.test", "hello there")
    assert line["time"].endswith("Z")


def test_what_was_added_to_a_line_becomes_a_field() -> None:
    line = as_json("done", status=200, path="/x", tags={"a"}, odd=object)
    assert (line["status"], line["path"], line["tags"], line["odd"]) == (200, "/x", ["a"], "<class 'object'>")


def test_a_line_written_while_an_operation_is_worked_on_carries_its_id() -> None:
    with log_operation(OP):
        assert as_json("half way")["op"] == OP
        assert TextFormatter().format(record("half way")).endswith(f"half way [{OP}]")
    assert "op" not in as_json("half way")


def test_an_operation_that_a_line_names_becomes_a_field() -> None:
    assert as_json("operation %s is put back", OP)["op"] == OP


def test_the_text_does_not_name_an_operation_twice() -> None:
    assert TextFormatter().format(record("operation %s is put back", OP)).count(OP) == 1


@pytest.mark.parametrize(
    "text",
    [
        TOKEN,
        f"Authorization: Bearer {TOKEN}",
        f"'x-auth-token': '{TOKEN}'",
        f"http://admin:{TOKEN}@host/x",
        f"/api/v1/kinds?token={TOKEN}&x=1",
        "Basic YWRtaW46c3dfMDEyMzQ1Njc4OWFiX1NFQ1JFVA==",
        "postgresql://me:hunter2hunter2@host/db",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\\nhunter2, and its end is cut off",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nhunter2\n-----END PGP PRIVATE KEY BLOCK-----",
        "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nhunter2\n---- END SSH2 ENCRYPTED PRIVATE KEY ----",
        "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\nhunter2\nPrivate-MAC: 00ff",
        "AGE-SECRET-KEY-1HUNTER2hunter2",
    ],
)
def test_secrets_of_every_shape_are_masked(text: str) -> None:
    clean = redacted(text)
    assert not any(secret in clean for secret in (SECRET, "hunter2", "YWRtaW46"))
    assert "***" in clean


def test_of_a_token_the_part_stays_that_finds_its_record() -> None:
    assert redacted(f"revoked {TOKEN}") == "revoked sw_0123456789ab_***"


def test_ordinary_words_are_left_alone() -> None:
    text = "swim_lanes: basic things, bearer of news, sw_alone; operation 12 on postgresql://host:5432/db"
    assert redacted(text) == text


def test_secrets_in_added_fields_and_tracebacks_are_masked() -> None:
    try:
        raise ValueError(f"cannot use {TOKEN}")
    except ValueError as error:
        made = record("bad", header={"authorization": [f"Bearer {TOKEN}"]}, why=error)
        made.exc_info = (type(error), error, error.__traceback__)
    assert SECRET not in JsonFormatter().format(made)
    assert SECRET not in TextFormatter().format(made)


def test_a_masked_line_is_still_json() -> None:
    line = as_json("a", url="postgresql://me:pw@host/db", mail="you@host")
    assert (line["url"], line["mail"]) == ("postgresql://me:***@host/db", "you@host")


PIECES = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=30)


@given(PIECES, PIECES)
def test_no_token_survives_whatever_stands_around_it(before: str, after: str) -> None:
    text = f"{before}{TOKEN}{after}"
    assert SECRET not in redacted(text)
    assert SECRET not in JsonFormatter().format(record("%s", text, field=text))


@given(st.dictionaries(st.text(min_size=1), st.integers() | st.text() | st.none() | st.lists(st.text())))
def test_whatever_is_added_the_line_is_one_line_of_json(extra: dict[str, Any]) -> None:
    text = JsonFormatter().format(record("x", field=extra))
    assert "\n" not in text
    json.loads(text)


@pytest.mark.parametrize("library", ["asyncssh", "asyncssh.sftp", "azure.core.pipeline", "websockets.client"])
def test_a_library_logs_its_warnings_and_not_each_connection(written: io.StringIO, library: str) -> None:
    logging.getLogger(library).info("opened")
    logging.getLogger(library).warning("failed")
    assert [json.loads(line)["message"] for line in written.getvalue().splitlines()] == ["failed"]


def test_everybodys_lines_go_one_way(written: io.StringIO) -> None:
    logging.getLogger("stateward.worker").warning("one %s", TOKEN)
    logging.getLogger("somebody.else").error("two")
    logging.getLogger("uvicorn.error").info("not worth a line")
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line["message"] for line in lines] == ["one sw_0123456789ab_***", "two"]


def test_a_replaced_database_is_logged_by_the_store_and_by_nobody_else(written: io.StringIO) -> None:
    error, log = DatabaseReplaced("stateward.db is gone"), logging.getLogger("stateward.worker")
    log.warning("worker %s waits for the store: %s", "w", error)
    log.error("first loop has failed", exc_info=ExceptionGroup("both", [error, error]))
    log.error("second loop has failed", exc_info=ExceptionGroup("both", [error, ValueError("and this")]))
    log.warning("worker %(name)s", {"name": "w"})
    messages = [json.loads(line)["message"] for line in written.getvalue().splitlines()]
    assert messages == ["second loop has failed", "worker w"]
