"""Privacy of kinds: internal and secret parts are removed from records for other readers."""

from pathlib import Path

import pytest
from msgspec.structs import replace

import stateward.server
from stateward.domains.mci.lifecycle import MCI
from stateward.domains.ovc.lifecycle import DISK, VM
from stateward.engine import Kind
from stateward.engine.kinds import Kinds
from stateward.engine.privacy import Privacy, internal_actions
from stateward.store.records import JournalEntry, Object, Operation, Status, Timer

FOUND = Object("a", "vm-1", VM.kind, "RUNNING", 0.0, 1, 1, None, "vm-1", None, "{}", "{}", "broken", 0.0)
WORK = Operation(
    "a", "op", "vm-1", VM.kind, "stop", "user", "ann", "[]", "{}", "RUNNING", "STOPPING", "HALTED", "RUNNING",
    False, 1.0, 1, None, None, None, Status.WAITING, 0, "{}", None, None, 0.0,
)  # fmt: skip
ENTRY = JournalEntry("a", "vm-1", VM.kind, "op", 0.0, "user", "ann", "stop", "RUNNING", "STOPPING", "why")


def _kinds(privacy: Privacy) -> Kinds:
    return Kinds([Kind(VM, privacy=privacy), Kind(MCI), Kind(DISK)])


def test_internal_fields_are_shown_to_administrators_alone() -> None:
    kinds = _kinds(Privacy(fields=frozenset({"node"})))
    found = replace(FOUND, spec='{"name":"x","node":"n"}', seen='{"node":"n","disks":{}}')
    assert kinds.disclosure(internal=True).object(found) == found
    shown = kinds.disclosure(internal=False).object(found)
    assert (shown.spec, shown.seen, shown.error) == ('{"name":"x"}', '{"disks":{}}', "broken")
    work = replace(WORK, args='{"node":"n","force":true}', result='{"node":"n"}', steps='{"node":1}')
    told = kinds.disclosure(internal=False).operation(work)
    assert told is not None
    assert (told.args, told.result, told.steps) == ('{"force":true}', "{}", "{}")


@pytest.mark.parametrize("internal", [False, True])
def test_secret_values_are_masked_for_everybody_at_any_depth(internal: bool) -> None:
    kinds = _kinds(Privacy(secrets=frozenset({"env"})))
    found = replace(FOUND, spec='{"services":{"/a":{"env":{"K":"s"}}},"pools":{"env":{"nodes":2}}}')
    shown = kinds.disclosure(internal=internal).object(found)
    assert shown.spec == '{"services":{"/a":{"env":{"K":"***"}}},"pools":{"env":{"nodes":2}}}'
    entry = kinds.disclosure(internal=internal).entry(replace(ENTRY, spec='{"env":{"K":"s"}}'))
    assert entry is not None
    assert entry.spec == '{"env":{"K":"***"}}'


def test_of_an_unknown_kind_administrators_see_names_and_others_see_nothing_that_might_be_secret() -> None:
    kinds = Kinds([Kind(MCI)])
    found = replace(FOUND, spec='{"env":{"K":"s"},"size":1}', seen='["x"]', op="op")
    work = replace(WORK, args='{"password":"p"}', result='"r"', steps='{"made":{"id":"x"}}', error="broken")
    timer = Timer("a", "t", 0.0, 0, "vm-1", "stop", "[]", '{"password":"p"}')
    entry = replace(ENTRY, spec='{"env":{"K":"s"}}')
    admins, others = kinds.disclosure(internal=True), kinds.disclosure(internal=False)
    shown, told, line = admins.object(found), admins.operation(work), admins.entry(entry)
    assert told is not None
    assert line is not None
    assert (shown.spec, shown.seen, shown.error, shown.op) == ('{"env":"***","size":"***"}', '"***"', "broken", "op")
    assert (told.args, told.result, told.steps) == ('{"password":"***"}', '"***"', '{"made":"***"}')
    assert (line.spec, line.reason) == ('{"env":"***"}', "why")
    assert admins.timer(timer, VM.kind).args == '{"password":"***"}'
    shown, line = others.object(found), others.entry(entry)
    assert line is not None
    assert (shown.spec, shown.seen, shown.error, shown.op) == ("{}", "{}", None, None)
    assert (others.operation(work), line.spec, line.reason, line.op) == (None, "{}", None, None)
    assert others.entry(replace(ENTRY, target=None)) is None
    assert others.hides_action(VM.kind, "start")
    assert others.hides_places(VM.kind)
    assert others.timer(timer, VM.kind).args == "{}"


def test_texts_that_are_internal_are_left_out() -> None:
    disclosure = _kinds(Privacy(texts=True)).disclosure(internal=False)
    entry, work = disclosure.entry(ENTRY), disclosure.operation(replace(WORK, error="broken"))
    assert entry is not None
    assert work is not None
    assert (disclosure.object(FOUND).error, work.error, entry.reason, entry.target) == (None, None, None, "STOPPING")


def test_hidden_work_is_internal_unless_a_user_may_ask_for_it() -> None:
    assert (internal_actions(VM), internal_actions(MCI), internal_actions(DISK)) == (
        frozenset({"migrate"}),
        frozenset(),
        frozenset(),
    )
    everybody, administrators = (_kinds(Privacy()).disclosure(internal=one) for one in (False, True))
    moving = replace(WORK, action="migrate", hidden=True)
    assert (everybody.operation(moving), administrators.operation(moving)) == (None, moving)
    refined = replace(WORK, kind=MCI.kind, action="refine", hidden=True)
    assert everybody.operation(refined) == refined


def test_a_line_that_may_tell_of_internal_work_is_internal() -> None:
    everybody, administrators = (_kinds(Privacy()).disclosure(internal=one) for one in (False, True))
    for event in ("migrate", "migrated", "failed", "put back", "rejected: succeeded"):
        entry = replace(ENTRY, event=event, source=None, target=None)
        assert (everybody.entry(entry), administrators.entry(entry)) == (None, entry)
        assert everybody.entry(replace(entry, kind=MCI.kind)) is not None
    assert everybody.entry(replace(ENTRY, event="labels changed", op=None, source=None, target=None)) is not None


def test_the_id_of_an_operation_that_a_reader_cannot_find_is_not_told() -> None:
    kinds = _kinds(Privacy(operations=True))
    everybody, administrators = (kinds.disclosure(internal=one) for one in (False, True))
    held = replace(FOUND, op="op")
    assert (everybody.operation(WORK), everybody.object(held).op, administrators.object(held).op) == (None, None, "op")
    entry = everybody.entry(ENTRY)
    assert entry is not None
    assert (entry.op, entry.target) == (None, "STOPPING")
    assert administrators.entry(ENTRY) == ENTRY


def test_all_internal_lanes_of_a_kind_have_one_name() -> None:
    everybody, administrators = (_kinds(Privacy(places="ovc/")).disclosure(internal=one) for one in (False, True))
    assert [everybody.lane(one) for one in ("ovc/node-1", "ovc/node-2", "aws/eu", "")] == [
        "ovc/*",
        "ovc/*",
        "aws/eu",
        "",
    ]
    assert administrators.lane("ovc/node-1") == "ovc/node-1"


def test_records_are_shown_by_the_presenter_alone() -> None:
    """A route that made its own view of a record would forget what is internal."""
    files = Path(stateward.server.__file__).parent.rglob("*.py")
    views = ("object_view", "operation_view", "journal_entry_view")
    users = {file.name for file in files if any(f" {view}" in file.read_text("utf-8") for view in views)}
    assert users == {"views.py", "presenter.py"}
