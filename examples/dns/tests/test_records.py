"""Zones and records through the engine, on a simulated server."""

import asyncio

import msgspec
import pytest
from embedded import NS, ZONE, records_on
from msgspec.structs import replace

from stateward.engine import NotFound, Refused
from stateward.plugin import BadInput
from stateward_dns import kinds
from stateward_dns.drift import sightings
from stateward_dns.guards import RecordTaken, ZoneNotEmpty, ZoneNotReady
from stateward_dns.model import RecordSpec, RecordType, RRset, RRsetKey, wanted_rrset
from stateward_dns.simulated import SimulatedServer

WWW = RRsetKey("www", "A")


async def test_record_is_created_changed_disabled_enabled_and_deleted() -> None:
    server = SimulatedServer()
    async with records_on(server) as records:
        assert (await records.create_zone()).status == "succeeded"
        assert (await records.create()).status == "succeeded"
        assert server.zones[ZONE] == {WWW: RRset(300, ("192.0.2.1",))}
        assert (await records.do("www", "change", values=["192.0.2.2", "192.0.2.3"])).status == "succeeded"
        assert server.zones[ZONE] == {WWW: RRset(300, ("192.0.2.2", "192.0.2.3"))}
        assert (await records.spec("www"))["values"] == ["192.0.2.2", "192.0.2.3"]
        await records.do("www", "disable")
        assert (await records.state("www"), server.zones[ZONE]) == ("disabled", {})
        await records.do("www", "enable")
        assert (await records.state("www"), WWW in server.zones[ZONE]) == ("active", True)
        await records.do("www", "delete")
        assert server.zones[ZONE] == {}
        with pytest.raises(NotFound):
            await records.state("www")


async def test_record_needs_a_zone_that_is_ready() -> None:
    server = SimulatedServer()
    async with records_on(server) as records:
        with pytest.raises(NotFound):
            await records.create()
        server.owners[ZONE] = "other/example.org"
        assert (await records.create_zone()).status == "failed"
        with pytest.raises(ZoneNotReady):
            await records.create()


async def test_zone_of_another_namespace_is_neither_taken_nor_removed() -> None:
    server = SimulatedServer()
    await server.add_zone(ZONE, f"other/{ZONE}")
    async with records_on(server) as records:
        done = await records.create_zone()
        assert done.error == f"the server has the zone {ZONE} already, and not for this namespace"
        assert (await records.do(ZONE, "delete")).status == "succeeded"
    assert server.owners == {ZONE: f"other/{ZONE}"}


async def test_two_records_cannot_have_the_same_name_and_type() -> None:
    async with records_on(SimulatedServer()) as records:
        await records.create_zone()
        await records.create()
        with pytest.raises(RecordTaken, match="record www has www/A"):
            await records.create("other", name="www")
        assert (await records.create("six", name="www", type="AAAA", values=["2001:db8::1"])).status == "succeeded"


async def test_of_two_records_at_once_one_is_refused() -> None:
    async with records_on(SimulatedServer()) as records:
        await records.create_zone()
        both = await asyncio.gather(
            records.create("one", name="www"), records.create("other", name="www"), return_exceptions=True
        )
        assert sorted(isinstance(one, RecordTaken) for one in both) == [False, True]


async def test_zone_with_records_is_not_deleted() -> None:
    async with records_on(SimulatedServer()) as records:
        await records.create_zone()
        await records.create()
        with pytest.raises(ZoneNotEmpty, match="www"):
            await records.do(ZONE, "delete")
        await records.do("www", "delete")
        assert (await records.do(ZONE, "delete")).status == "succeeded"


async def test_foreign_values_are_neither_overwritten_nor_deleted() -> None:
    server = SimulatedServer()
    async with records_on(server) as records:
        await records.create_zone()
        foreign = RRset(60, ("198.51.100.7",))
        server.zones[ZONE][WWW] = foreign
        assert (await records.create()).status == "failed"
        assert await records.state("www") == "failed"
        await records.do("www", "delete")
        assert server.zones[ZONE] == {WWW: foreign}


async def test_change_that_fails_keeps_the_spec() -> None:
    server = SimulatedServer()
    async with records_on(server) as records:
        await records.create_zone()
        await records.create()
        zone = server.zones.pop(ZONE)
        assert (await records.do("www", "change", ttl=60)).status == "failed"
        assert (await records.state("www"), (await records.spec("www"))["ttl"]) == ("active", 300)
        server.zones[ZONE] = zone


async def test_a_second_version_of_the_specs_is_read_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "record", replace(kinds.record, spec_version=2, upgrade=lambda spec, _version: spec))
    server = SimulatedServer()
    async with records_on(server) as records:
        await records.create_zone()
        await records.create()
        assert (await records.do("www", "change", ttl=60)).status == "succeeded"
        assert server.zones[ZONE][WWW].ttl == 60
        zone, record = await records.object(ZONE), await records.object("www")
        assert [*sightings(zone, [record], server.zones[ZONE], 0.0)] == []
        assert (await records.do("www", "delete")).status == "succeeded"


async def test_parent_and_label_of_a_record_follow_from_its_spec() -> None:
    async with records_on(SimulatedServer()) as records:
        await records.create_zone()
        await records.create()
        found = await records.object("www")
        assert (found.parent, msgspec.json.decode(found.labels)) == (ZONE, {"rrset": "www/A"})


async def test_no_action_brings_a_spec_that_leads_to_another_name() -> None:
    server = SimulatedServer()
    async with records_on(server) as records:
        await records.create_zone()
        await records.create()
        served = dict(server.zones[ZONE])
        other = {"zone": ZONE, "name": "mail", "values": ["192.0.2.1"]}
        with pytest.raises(BadInput, match="spec: must be left out"):
            await records.engine.act(NS, "www", "disable", spec=other)
        assert server.zones[ZONE] == served


async def test_change_is_refused_while_another_runs() -> None:
    reached, opened = asyncio.Event(), asyncio.Event()

    async def hold(_: str) -> None:
        reached.set()
        await opened.wait()

    opened.set()
    async with records_on(SimulatedServer(on_change=hold)) as records:
        await records.create_zone()
        await records.create()
        reached.clear()
        opened.clear()
        first = asyncio.create_task(records.do("www", "change", ttl=60))
        await reached.wait()
        with pytest.raises(Refused, match="change"):
            await records.do("www", "change", ttl=90)
        opened.set()
        await first


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"values": []}, "values"),
        ({"values": ["300.0.0.1"]}, "values"),
        ({"ttl": 1}, "ttl"),
        ({"type": "SOA"}, "type"),
        ({"name": "WWW"}, "name"),
        ({"zone": "no zone"}, "zone"),
        ({"type": "CNAME", "name": "@", "values": ["web"]}, "values"),
        ({"value": "192.0.2.1"}, "value"),
    ],
)
async def test_wrong_spec_is_refused_with_its_field(wrong: dict[str, object], field: str) -> None:
    async with records_on(SimulatedServer()) as records:
        await records.create_zone()
        with pytest.raises(BadInput) as refused:
            await records.create("wrong", **wrong)
        assert field in str(refused.value)


async def test_wrong_change_is_refused_with_the_value() -> None:
    async with records_on(SimulatedServer()) as records:
        await records.create_zone()
        await records.create()
        with pytest.raises(BadInput, match=r"values: '300.0.0.1' must be the data of a record of type A"):
            await records.do("www", "change", values=["300.0.0.1"])
        with pytest.raises(BadInput, match="given, or a ttl, or both"):
            await records.do("www", "change")


async def test_zone_needs_the_name_of_a_domain() -> None:
    async with records_on(SimulatedServer()) as records:
        with pytest.raises(BadInput, match="domain name"):
            await records.create_zone("Example")


def test_values_are_compared_in_one_form() -> None:
    spec = RecordSpec(zone=ZONE, name="@", type=RecordType.MX, values=("20 Mail2", "10 mail.example.org."))
    assert wanted_rrset(spec).values == ("10 mail.example.org.", "20 mail2.example.org.")
