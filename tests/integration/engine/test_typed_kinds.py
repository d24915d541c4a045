"""Typed specs and arguments: checked when a request is accepted, typed in jobs, upgraded when they are read."""

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta, Struct
from rich.pretty import pretty_repr

from stateward.engine import Engine, Handler, Job, Kind, Permanent, Request, Rules
from stateward.engine.external_reports import ExternalReport
from stateward.engine.requests import Creation
from stateward.errors import BadInput, StatewardError
from stateward.lifecycle.actors import AGENT
from stateward.store.filters import JournalFilter, Page, Selector
from stateward.store.port import Store
from stateward.store.records import JournalEntry, Key, Object, Status
from tests.integration.engine.conftest import Site
from tests.integration.engine.pump_kinds import PUMP, Plant
from tests.integration.engine.record_kinds import RECORD, SECRET, Change, Login, RecordSpec, RecordType, RecordWork

GOOD = {"address": "192.0.2.1"}
SECRETIVE = {"address": "192.0.2.1", "login": {"user": "ann", "password": "hush-hush"}}


class RecordSite(Site):
    """An engine with records, and the work on them."""

    def __init__(self, engine: Engine, work: RecordWork) -> None:
        super().__init__(engine, Plant())
        self.work = work

    async def create(self, name: str, spec: Any, **how: Any) -> Object:
        """Create a record and wait until it is there."""
        await self.ended(await self.engine.create("ns", name, RECORD.kind, spec=spec, **how))
        return await self.engine.record("ns", name)

    async def everything(self) -> tuple[list[Object], list[JournalEntry]]:
        reader = self.engine.store.reader
        objects = await reader.list_objects(Selector("ns"), Page(None, 100))
        return objects, await reader.journal(0, 1000, JournalFilter())


@pytest.fixture
async def records(new_store: Callable[[], Store]) -> AsyncIterator[RecordSite]:
    work = RecordWork()
    async with Engine(new_store(), [work.kind()]) as engine:
        yield RecordSite(engine, work)


async def test_jobs_have_typed_specs_and_arguments_with_their_defaults(records: RecordSite) -> None:
    found = await records.create("www", SECRETIVE)
    assert msgspec.json.decode(found.spec) == {**SECRETIVE, "type": "A", "ttl": 300, "tags": []}
    await records.ended(await records.engine.act("ns", "www", "change", args={"ttl": 5}))
    await records.ended(await records.engine.act("ns", "www", "change", args=Change(token="t")))
    await records.ended(await records.engine.act("ns", "www", "touch"))
    spec = RecordSpec(address="192.0.2.1", login=Login("ann", "hush-hush"))
    assert records.work.jobs == [
        ("create", spec, {}),
        ("change", spec, Change(ttl=5)),
        ("change", spec, Change(token="t")),
        ("touch", spec, {}),
    ]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (None, "spec.address: must be given"),
        ({"address": "192.0.2.1", "ttl": 0}, "spec.ttl: must be at least 1"),
        ({"address": "192.0.2.1", "ttl": "5"}, "spec.ttl: must be a whole number, not a text"),
        ({"address": "192.0.2.1", "tll": 5}, "spec.tll: must be a field of this body; did you mean 'ttl'"),
        ({"address": "192.0.2.1", "type": "B"}, "spec.type: must be one of A, TXT"),
        ({"address": "x"}, "spec.address: must be text of 0-9 ."),
        ([1], "spec: must be an object"),
    ],
)
async def test_a_spec_that_does_not_fit_is_refused_and_nothing_is_written(
    records: RecordSite, spec: Any, said: str
) -> None:
    with pytest.raises(BadInput, match=said) as refusal:
        await records.engine.create("ns", "www", RECORD.kind, spec=spec)
    assert refusal.value.state is None
    assert await records.everything() == ([], [])


@pytest.mark.parametrize(
    ("action", "how", "said"),
    [
        ("change", {"args": {"ttl": 0}}, "args.ttl: must be at least 1"),
        ("change", {"args": {"tokn": "t"}}, "args.tokn: must be a field of this body; did you mean 'token'"),
        ("change", {"spec": {}}, "spec.address: must be given"),
        ("check", {}, "args.resolver: must be given"),
        ("touch", {"args": {"x": 1}}, "args: must be left out: touch takes no arguments"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_and_nothing_is_written(
    records: RecordSite, action: str, how: dict[str, Any], said: str
) -> None:
    await records.create("www", GOOD)
    before = await records.everything()
    with pytest.raises(BadInput, match=said) as refusal:
        await records.engine.act("ns", "www", action, **how)
    assert refusal.value.state == "served"
    (verdict,) = await records.engine.plan([records.engine.request("ns", "www", action, **how)])
    assert str(verdict) == str(refusal.value)
    assert await records.everything() == before


async def test_an_action_that_another_party_carries_out_has_typed_arguments(records: RecordSite) -> None:
    await records.create("www", GOOD)
    accepted = await records.engine.act("ns", "www", "check", args={"resolver": "192.0.2.53"})
    assert accepted.op.args == '{"resolver":"192.0.2.53"}'


async def test_a_new_spec_of_an_action_is_stored_with_its_defaults(records: RecordSite) -> None:
    await records.create("www", GOOD)
    await records.ended(await records.engine.act("ns", "www", "change", spec={"address": "192.0.2.2", "type": "TXT"}))
    assert records.work.jobs[-1][1] == RecordSpec(address="192.0.2.2", type=RecordType.TXT)
    assert (await records.engine.record("ns", "www")).generation == 2


async def test_a_key_stands_for_the_request_as_it_came(records: RecordSite) -> None:
    await records.create("www", GOOD, key="k")
    again = await records.engine.create("ns", "www", RECORD.kind, spec=GOOD, key="k")
    assert again.again
    for _ in range(2):
        with pytest.raises(StatewardError, match=r"args.ttl: must be at least 1"):
            await records.engine.act("ns", "www", "change", args={"ttl": 0}, key="other")


async def test_members_of_a_group_are_checked_and_a_mistake_of_the_caller_is_told_as_one(records: RecordSite) -> None:
    for name in ("a", "b"):
        await records.create(name, GOOD)
    chosen, change = Selector("ns", RECORD.kind), records.engine.request("ns", "", "change", args={"ttl": 0})
    with pytest.raises(BadInput, match=r"args.ttl: must be at least 1"):
        await records.engine.group(None, chosen, change)
    verdict = await records.engine.group(None, chosen, records.engine.request("ns", "", "change", args={"ttl": 7}))
    assert [one.op.args for one in verdict.begun] == ['{"ttl":7,"token":null}'] * 2


async def test_a_sequence_with_a_spec_that_does_not_fit_writes_nothing(records: RecordSite) -> None:
    creates = Creation(RECORD.kind)
    first = records.engine.request("ns", "www", "create", spec={"address": "x"}, creates=creates)
    with pytest.raises(BadInput, match=r"spec.address"):
        await records.engine.submit_sequence([first])
    assert await records.everything() == ([], [])


async def test_children_that_do_not_fit_are_denied(new_store: Callable[[], Store]) -> None:
    denied: dict[str, str] = {}

    async def build(job: Job) -> None:
        wanted = {"good": '{"address":"192.0.2.1"}', "bad": '{"address":"192.0.2.1","ttl":0}'}
        creates = Creation(RECORD.kind)
        requests = [Request("ns", name, "create", "", spec=spec, creates=creates) for name, spec in wanted.items()]
        denied.update(await job.spawn("records", requests))

    pump = Kind(PUMP, dict.fromkeys(PUMP.actions, Handler(build)))
    async with Engine(new_store(), [RecordWork().kind(), pump]) as engine:
        accepted = await engine.create("ns", "pump", PUMP.kind, "build")
        assert (await engine.wait("ns", accepted.op.id, 30)).status is Status.SUCCEEDED
        assert denied == {"bad": "spec.ttl: must be at least 1"}
        assert (await engine.record("ns", "good")).state == "served"


async def test_an_error_of_a_handler_does_not_repeat_a_secret(records: RecordSite) -> None:
    records.work.error = Permanent("ann/hush-hush was refused, and so was the token t0k3n")
    await records.ended(await records.engine.create("ns", "www", RECORD.kind, spec=SECRETIVE))
    found = await records.engine.record("ns", "www")
    assert found.error == "ann/*** was refused, and so was the token t0k3n"
    ended = await records.ended(await records.engine.act("ns", "www", "change", args={"token": "t0k3n"}))
    assert ended.error == "ann/*** was refused, and so was the token ***"
    assert "hush" not in str([one.reason for one in await records.engine.history("ns", "www")])


async def test_progress_and_trouble_of_a_handler_do_not_repeat_a_secret(new_store: Callable[[], Store]) -> None:
    kind = RecordWork().kind()

    @kind.handles("create")
    async def create(job: Job) -> None:
        await job.progress("ann signs in with hush-hush")
        await job.report_trouble("hush-hush was refused")

    async with Engine(new_store(), [kind]) as engine:
        accepted = await engine.create("ns", "www", RECORD.kind, spec=SECRETIVE)
        await engine.wait("ns", accepted.op.id, 30)
        progress = await engine.store.reader.progress_of(accepted.op.key, 0)
        assert [one.text for one in progress] == ["ann signs in with ***"]
        assert "*** was refused" in [one.reason for one in await engine.history("ns", "www")]


async def test_the_traceback_of_an_undo_does_not_repeat_a_secret(
    new_store: Callable[[], Store], caplog: pytest.LogCaptureFixture
) -> None:
    kind = RecordWork().kind()

    async def fail(_: object) -> None:
        raise RuntimeError("hush-hush was refused")

    async def login() -> None: ...

    @kind.handles("create")
    async def create(job: Job) -> None:
        await job.once("login", login, undo=fail)
        raise Permanent("the zone is gone")

    async with Engine(new_store(), [kind]) as engine:
        accepted = await engine.create("ns", "www", RECORD.kind, spec=SECRETIVE)
        ended = await engine.wait("ns", accepted.op.id, 30)
    assert "RuntimeError: *** was refused" in caplog.text
    assert "login could not be undone: RuntimeError: *** was refused" in str(ended.error)
    assert "hush" not in caplog.text + str(ended)


async def test_the_traceback_of_a_handler_does_not_repeat_a_secret(
    records: RecordSite, caplog: pytest.LogCaptureFixture
) -> None:
    records.work.error = RuntimeError("ann/hush-hush was refused")
    accepted = await records.engine.create("ns", "www", RECORD.kind, spec=SECRETIVE)
    await records.ended(accepted)
    stored = await records.engine.store.reader.operation(accepted.op.key)
    assert "RuntimeError: ann/*** was refused" in caplog.text
    assert "RuntimeError: ann/*** was refused" in str(stored)
    assert "hush" not in caplog.text + str(stored)


async def test_a_report_of_another_party_and_an_observed_state_do_not_repeat_a_secret(records: RecordSite) -> None:
    await records.create("www", SECRETIVE)
    accepted = await records.engine.act("ns", "www", "check", args={"resolver": "r"})
    said = '{"login":"ann/hush-hush"}'
    report = ExternalReport(
        "ns", "www", accepted.op.id, accepted.op.generation, "checked", AGENT, result=said, seen=said
    )
    assert await records.engine.report(report)
    found = await records.engine.store.reader.operation(accepted.op.key)
    assert found is not None
    assert found.result == '{"login":"ann/***"}'
    shown = records.engine.kinds.disclosure(internal=True).object(await records.engine.record("ns", "www"))
    assert "hush" not in shown.seen


@pytest.mark.parametrize("internal", [False, True])
async def test_secrets_are_masked_for_every_reader(records: RecordSite, internal: bool) -> None:
    found = await records.create("www", SECRETIVE)
    disclosure = records.engine.kinds.disclosure(internal=internal)
    shown = msgspec.json.decode(disclosure.object(found).spec)
    assert shown["login"] == {"user": "ann", "password": "***"}
    accepted = await records.engine.act("ns", "www", "change", args={"token": "t0k3n"})
    operation = disclosure.operation(accepted.op)
    assert operation is not None
    assert operation.args == '{"ttl":60,"token":"***"}'
    stored = await records.engine.store.reader.journal(0, 100, JournalFilter(ns="ns", object="www"))
    entries = [disclosure.entry(one) for one in stored]
    assert "hush" not in str(entries)


async def test_what_the_library_returns_shows_no_secret_in_logs(records: RecordSite) -> None:
    done = await records.engine.run("ns", "www", "create", kind=RECORD.kind, spec=SECRETIVE)
    changed = await records.engine.act("ns", "www", "change", args={"token": "t0k3n"})
    shown = repr((done, changed, await records.engine.history("ns", "www"))) + pretty_repr(done)
    assert "hush" not in shown
    assert "t0k3n" not in shown
    assert "id='www', kind='dns.record', state='served'" in repr(done)
    assert "spec=..." in repr(done)
    await records.ended(changed)


async def stored_args(engine: Engine, op: str) -> str:
    found = await engine.store.reader.operation(Key("ns", op))
    assert found is not None
    return found.args


@pytest.mark.parametrize("error", [None, Permanent("it failed")], ids=["succeeded", "failed"])
async def test_secrets_in_arguments_are_stored_until_the_operation_ends(
    records: RecordSite, error: Exception | None
) -> None:
    await records.create("www", GOOD)
    records.work.error = error
    ended = await records.ended(await records.engine.act("ns", "www", "change", args={"token": "t0k3n"}))
    assert records.work.jobs[-1][2] == Change(token="t0k3n")
    assert ended.status == ("succeeded" if error is None else "failed")
    assert await stored_args(records.engine, ended.id) == '{"ttl":60,"token":"***"}'


async def test_secrets_in_the_arguments_of_a_cancelled_operation_are_masked(new_store: Callable[[], Store]) -> None:
    kind = Kind(RECORD, rules=Rules(delegated=RECORD.actions))
    kind.handles("create", args=Change)(RecordWork().work)
    async with Engine(new_store(), [kind], works=False) as engine:
        accepted = await engine.create("ns", "www", RECORD.kind, args={"token": "t0k3n"})
        assert await stored_args(engine, accepted.op.id) == '{"ttl":60,"token":"t0k3n"}'
        await engine.cancel("ns", accepted.op.id)
        assert await stored_args(engine, accepted.op.id) == '{"ttl":60,"token":"***"}'


async def test_a_type_of_arguments_that_is_declared_late_counts(new_store: Callable[[], Store]) -> None:
    work, kind = RecordWork(), Kind(RECORD, rules=Rules(delegated=RECORD.actions))
    async with Engine(new_store(), [kind]) as engine:
        kind.handles("create", args=Change)(work.work)
        with pytest.raises(BadInput, match=r"args.ttl"):
            await engine.create("ns", "www", RECORD.kind, args={"ttl": 0})
        accepted = await engine.create("ns", "www", RECORD.kind, args={"token": "t0k3n"})
        shown = engine.kinds.disclosure(internal=True).operation(accepted.op)
        assert shown is not None
        assert "t0k3n" not in shown.args


@pytest.mark.parametrize("name", ["spec", "args"])
async def test_values_without_a_type_are_not_nested_too_deeply(new_store: Callable[[], Store], name: str) -> None:
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    given: dict[str, Any] = {name: {"a": deep}}
    async with Engine(new_store(), [Kind(PUMP, dict.fromkeys(PUMP.actions, Handler(nothing)))]) as engine:
        with pytest.raises(BadInput, match=f"{name}: must be nested at most 100 levels deep"):
            await engine.create("ns", "pump", PUMP.kind, "build", **given)


# --- versions ---------------------------------------------------------------------------------------------------------


class FirstSpec(Struct):
    """What a record was."""

    ip: str
    pin: Annotated[str, Meta(extra_json_schema=SECRET)] = "0000"


class SecondSpec(Struct, forbid_unknown_fields=True):
    """What a record is to be: `ip` has got another name."""

    address: str
    ttl: Annotated[int, Meta(ge=1)] = 300


class ThirdSpec(Struct):
    """What a record will be."""

    address: str
    ttl: int


def upgrade(spec: dict[str, Any], version: int) -> dict[str, Any]:
    if spec["ip"] == "broken":
        raise LookupError("it is broken")
    return {"address": spec["ip"]} if version == 1 else spec


def kind_of(work: RecordWork, **how: Any) -> Kind:
    handler = Handler(work.work)
    handlers = {"create": handler, "change": handler, "touch": handler, "delete": Handler(nothing)}
    return Kind(RECORD, handlers, spec_actions=("change",), **how)


async def nothing(_: Job) -> None:
    """Do nothing."""


@pytest.fixture
async def first_records(new_store: Callable[[], Store]) -> Callable[[], Store]:
    """Store records of the first version, one of which cannot be upgraded."""
    async with Engine(new_store(), [kind_of(RecordWork(), spec=FirstSpec)]) as engine:
        for name, ip in (("www", "192.0.2.1"), ("odd", "broken"), ("empty", "")):
            accepted = await engine.create("ns", name, RECORD.kind, spec={"ip": ip})
            await engine.wait("ns", accepted.op.id, 30)
    return new_store


async def test_a_spec_of_an_earlier_version_is_read_in_the_present_one(first_records: Callable[[], Store]) -> None:
    work = RecordWork()
    kind = kind_of(work, spec=SecondSpec, spec_version=2, upgrade=upgrade)
    async with Engine(first_records(), [kind]) as engine:
        disclosure = engine.kinds.disclosure(internal=False)
        assert disclosure.object(await engine.record("ns", "www")).spec == '{"address":"192.0.2.1","ttl":300}'
        (made, *_) = await engine.store.reader.journal(0, 100, JournalFilter(ns="ns", object="www"))
        shown = disclosure.entry(made)
        assert shown is not None
        assert shown.spec == '{"address":"192.0.2.1","ttl":300}'
        await engine.wait("ns", (await engine.act("ns", "www", "touch")).op.id, 30)
        assert work.jobs == [("touch", SecondSpec("192.0.2.1"), {})]
        assert kind.read_spec(await engine.record("ns", "www")) == SecondSpec("192.0.2.1")
        assert (await engine.get("ns", "www")).spec == SecondSpec("192.0.2.1")
        assert (await engine.history("ns", "www"))[0].spec == SecondSpec("192.0.2.1")
        changed = await engine.act("ns", "www", "change", spec={"address": "192.0.2.2"})
        await engine.wait("ns", changed.op.id, 30)
        found = await engine.record("ns", "www")
        assert found.spec == '{"$version":2,"address":"192.0.2.2","ttl":300}'
        assert disclosure.object(found).spec == '{"address":"192.0.2.2","ttl":300}'
        assert work.jobs[-1][1] == SecondSpec("192.0.2.2")


class OtherSpec(Struct):
    """What a record is, after a change of types without a version: `pin` is unknown."""

    ip: str


class Token(Struct):
    token: Annotated[str, Meta(extra_json_schema=SECRET)]


class Number(Struct):
    ip: int
    pin: Annotated[str, Meta(extra_json_schema=SECRET)] = ""


async def test_fields_that_the_present_types_do_not_know_are_masked(first_records: Callable[[], Store]) -> None:
    kind = kind_of(RecordWork(), spec=OtherSpec, args={"change": Token})
    async with Engine(first_records(), [kind]) as engine:
        disclosure = engine.kinds.disclosure(internal=True)
        assert disclosure.object(await engine.record("ns", "www")).spec == '{"ip":"192.0.2.1","pin":"***"}'
        (made, *_) = await engine.store.reader.journal(0, 100, JournalFilter(ns="ns", object="www"))
        shown = disclosure.entry(made)
        assert shown is not None
        assert shown.spec == '{"ip":"192.0.2.1","pin":"***"}'
    types = kind.types
    assert types is not None
    assert types.show_args("change", '{"token":"a","old":{"b":1}}') == '{"token":"***","old":"***"}'
    assert types.show_args("change", '{"token":{"b":1}}') == '{"token":{"b":"***"}}'
    assert types.show_args("touch", '{"pin":"0000"}') == '{"pin":"***"}'
    assert types.show_args("forgotten", '{"pin":"0000"}') == '{"pin":"***"}'


async def test_all_of_a_spec_of_another_type_is_masked(first_records: Callable[[], Store]) -> None:
    async with Engine(first_records(), [kind_of(RecordWork(), spec=Number)]) as engine:
        shown = engine.kinds.disclosure(internal=True).object(await engine.record("ns", "www"))
    assert shown.spec == '{"ip":"***","pin":"***"}'
    assert shown.error == "the stored spec, of version 1, cannot be read: spec.ip: must be a whole number, not a text"


async def test_a_spec_that_cannot_be_upgraded_is_told_and_its_object_can_be_deleted(
    first_records: Callable[[], Store],
) -> None:
    work = RecordWork()
    async with Engine(first_records(), [kind_of(work, spec=SecondSpec, spec_version=2, upgrade=upgrade)]) as engine:
        shown = engine.kinds.disclosure(internal=False).object(await engine.record("ns", "odd"))
        why = (
            "the stored spec, of version 1, cannot be read: its upgrade to version 2 failed (LookupError: it is broken)"
        )
        assert (shown.spec, shown.error) == ('{"ip":"broken","pin":"0000"}', why)
        assert (await engine.get("ns", "odd")).spec == {"ip": "broken", "pin": "0000"}
        failed = await engine.wait("ns", (await engine.act("ns", "odd", "touch")).op.id, 30)
        assert failed.error == f"UnreadableSpec: {why}"
        await engine.wait("ns", (await engine.act("ns", "odd", "delete")).op.id, 30)
        assert work.jobs == []


async def test_a_failed_upgrade_is_logged_once_with_its_traceback_and_without_secrets(
    first_records: Callable[[], Store], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(spec: dict[str, Any], _: int) -> dict[str, Any]:
        raise LookupError(f"no place for {spec['pin']}")

    kind = kind_of(RecordWork(), spec=FirstSpec, spec_version=2, upgrade=broken)
    async with Engine(first_records(), [kind]) as engine:
        for name in ("www", "empty", "www"):
            engine.kinds.disclosure(internal=False).object(await engine.record("ns", name))
    (line,) = [one.getMessage() for one in caplog.records if "upgraded" in one.getMessage()]
    assert line.startswith("a spec of kind dns.record was not upgraded from version 1 to 2 (logged once):\nTraceback")
    assert line.endswith("LookupError: no place for ***")
    assert "in broken" in line


async def test_an_upgraded_spec_is_checked_and_a_newer_one_is_told(first_records: Callable[[], Store]) -> None:
    wrong = {"spec_version": 3, "upgrade": lambda _spec, _version: {"address": 5}}
    async with Engine(first_records(), [kind_of(RecordWork(), spec=ThirdSpec, **wrong)]) as engine:
        shown = engine.kinds.disclosure(internal=False).object(await engine.record("ns", "www"))
        assert shown.error is not None
        assert shown.error.endswith("cannot be read: spec.address: must be a text, not a whole number")
        accepted = await engine.create("ns", "new", RECORD.kind, spec={"address": "192.0.2.3", "ttl": 1})
        await engine.wait("ns", accepted.op.id, 30)
    async with Engine(first_records(), [kind_of(RecordWork(), spec=FirstSpec)]) as engine:
        shown = engine.kinds.disclosure(internal=False).object(await engine.record("ns", "new"))
        why = "the stored spec, of version 3, cannot be read: this program knows version 1"
        assert (shown.spec, shown.error) == ('{"address":"***","ttl":"***"}', why)
