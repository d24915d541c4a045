"""Whatever comes in from outside, each reader takes it or refuses it with an error of its own kind: nothing else.

The bodies of the API are tried over HTTP (`tests/integration/server/test_fuzz*.py`, `test_schemathesis.py`), an agent's
connection in `tests/integration/domains/edge/test_malice.py`; these are all other readers.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace as Namespace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stateward.agents.connection import DECODE_ERRORS
from stateward.agents.message_types import clip_text
from stateward.agents.messages import read_agent, read_controller
from stateward.cli.commands.create import read_spec
from stateward.cli.commands.object_files import read_documents
from stateward.client import arguments, journal_stream
from stateward.client.field_options import parse_fields
from stateward.client.progress import parse_events
from stateward.config import load
from stateward.domains.leases import property_expressions
from stateward.domains.leases.cli import commands as lease_commands
from stateward.domains.leases.resources.leased_mcis import _decode_template
from stateward.domains.leases.wire_values import read_time
from stateward.domains.mci.api import lenient_json
from stateward.domains.mci.cli.fleet_file import read_fleet
from stateward.domains.ovc.settings import SETTINGS_FILE, read_settings
from stateward.domains.systems.definition.parser import read as read_definition
from stateward.drivers.aws.settings import read_credential
from stateward.drivers.security_rules import wanted_rules
from stateward.engine.typed_values import value_type
from stateward.errors import StatewardError
from stateward.locks import parse_path
from stateward.server.auth.credentials import presented_token, token_id
from stateward.server.http.preconditions import wanted_versions
from stateward.server.live.stream_server import StreamClosed, _receive_subscription
from stateward.store.postgres.listener import decode_topics
from tests.integration.engine.record_kinds import RecordSpec

SCHEMA = value_type(RecordSpec).schema
Read = Callable[[str, Path], Any]
OURS = (StatewardError,)


class Said:
    """A socket over which one thing is said."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def receive_text(self) -> str:
        return self._text

    async def send_text(self, data: str) -> None: ...

    async def close(self, code: int, reason: str) -> None: ...


def from_file(read: Callable[[Path], Any], name: str = "file") -> Read:
    """Return a reader of text of a reader of files."""

    def reader(text: str, folder: Path) -> Any:
        (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        return read(folder / name)

    return reader


SESSION: Any = Namespace(kind=str, ns="default", kinds={})

READERS: Mapping[str, tuple[Read, tuple[type[Exception], ...]]] = {
    "an agent's word": (lambda text, _: read_agent(text), DECODE_ERRORS),
    "a controller's word": (lambda text, _: read_controller(text), DECODE_ERRORS),
    "the first word of a stream": (lambda text, _: asyncio.run(_receive_subscription(Said(text))), (StreamClosed,)),
    "a page of a stream": (lambda text, _: journal_stream._page("ws://x", text), OURS),
    "server-sent events": (lambda text, _: list(parse_events(text.split("\n"))), ()),
    "a definition of a system": (lambda text, _: read_definition(text), OURS),
    "a fleet": (lambda text, _: read_fleet(text, "fleet.yaml"), OURS),
    "a lenient body": (lambda text, _: lenient_json.parse_body(text.encode("utf-8", "replace")), OURS),
    "the configuration": (from_file(lambda file: load({}, {}, file)), OURS),
    "the settings of a domain": (from_file(lambda file: read_settings(file.parent), SETTINGS_FILE), OURS),
    "a spec": (from_file(lambda file: read_spec(str(file))), OURS),
    "objects to create": (from_file(lambda file: read_documents(SESSION, [str(file)])), OURS),
    "fields of a type": (lambda text, _: parse_fields([text, f"login.{text}", f"tags={text}"], SCHEMA), OURS),
    "fields of no type": (lambda text, _: parse_fields([text], None), OURS),
    "a credential": (from_file(lambda file: read_credential(f"file:{file}")), OURS),
    "a reference to a credential": (lambda text, _: read_credential(text), OURS),
    "rules of a firewall": (lambda text, _: wanted_rules(text), OURS),
    "a time": (lambda text, _: read_time("start", text, 1.0), OURS),
    "a span": (lambda text, _: lease_commands._add_span("--span", lease_commands._now(), text), OURS),
    "a time from now": (lambda text, _: lease_commands._parse_time("--start", text), OURS),
    "a reservation": (lambda text, _: lease_commands._read_reservation(text), OURS),
    "an expression about hosts": (
        lambda text, _: property_expressions.parse_expression("resource_properties", text),
        OURS,
    ),
    "a template": (lambda text, _: _decode_template(text), ()),
    "a path": (lambda text, _: parse_path(text), OURS),
    "a selector": (lambda text, _: arguments.parse_selector([text]), OURS),
    "values": (lambda text, _: arguments.parse_values("--arg", [text]), OURS),
    "tags": (lambda text, _: wanted_versions(text), OURS),
    "the id of a token": (lambda text, _: token_id(text), ()),
    "a token": (lambda text, _: presented_token([(b"authorization", text.encode("utf-8", "replace"))]), ()),
    "a notification": (lambda text, _: decode_topics(text), ()),
    "what an agent tells people": (lambda text, _: clip_text(text), ()),
}

DEEP = [
    "[" * 100_000,
    "[" * 5_000 + "]" * 5_000,
    '{"a":' * 5_000 + "1" + "}" * 5_000,
    '{"type":"beat","notify":1,"x":' + "[" * 5_000 + "]" * 5_000 + "}",
    "a = " + "[" * 5_000 + "]" * 5_000,
    "services: " + "{a: " * 2_000 + "1" + "}" * 2_000,
    "a=" + "[" * 5_000 + "]" * 5_000,
    "&a [*a, *a]",
    "9" * 5_000 + "d",
    "9" * 5_000,
    "a: " + "9" * 5_000,
    "a = " + "9" * 5_000,
    "a=" + "9" * 5_000,
    '{"a": ' + "9" * 5_000 + "}",
    '"' + "9" * 5_000 + '"',
    "services: {a: {instances: " + "9" * 5_000 + "}}",
    "a: 1.0e999",
    "²d",
    "999999d",
    "/" * 100_000,
    "Bearer " + "x" * 100_000,
    "\x00",
    "a\x00b: c",
]

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
trees = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
written = trees.map(lambda tree: msgspec.json.encode(tree).decode())
words = st.sampled_from(
    ["type", "hello", "notify", "name", "services", "2030-01-31 14:00", "8h", "$vcpus", ">=", "kind"]
)
signs = st.sampled_from(list("{}[]():=,;#\"'/\\$&*!|>-~ \n\t"))
near = st.lists(words | signs | st.text(max_size=3), max_size=12).map("".join)
texts = st.text(st.characters(exclude_categories=["Cs"])) | written | near


@pytest.mark.parametrize("what", READERS)
def test_any_text_is_read_or_refused(what: str, tmp_path: Path) -> None:
    read, errors = READERS[what]

    @settings(max_examples=80, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(texts)
    def check(text: str) -> None:
        read_or_refused(read, errors, text, tmp_path)

    check()


@pytest.mark.parametrize("what", READERS)
def test_what_is_nested_or_long_beyond_reason_is_read_or_refused(what: str, tmp_path: Path) -> None:
    read, errors = READERS[what]
    for text in DEEP:
        read_or_refused(read, errors, text, tmp_path)


def read_or_refused(read: Read, errors: tuple[type[Exception], ...], text: str, folder: Path) -> None:
    """Let a reader read: whatever else it raises fails the test."""
    with suppress(*errors):
        read(text, folder)
