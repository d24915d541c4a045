"""The pure parts of the ovc domain: names, records, and where a VM is put."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.domains.ovc.guards.node_guard import _node_weight
from stateward.domains.ovc.model import (
    AccountSpec,
    BinEntry,
    OvcVmSeen,
    OvcVmSpec,
    PlacedMachine,
    added_disk_id,
    boot_disk_id,
    machine_key,
    parse_spec,
)
from stateward.errors import BadInput
from stateward.store.records import to_json

IDS = st.text("0123456789abcdef", min_size=12, max_size=12)
SEENS = st.builds(
    OvcVmSeen,
    closing=st.booleans(),
    bin=st.none() | st.builds(BinEntry, since=st.floats(0, 1e10), along=IDS),
    node=IDS,
    machine=IDS,
    to=IDS,
    disks=st.dictionaries(IDS, st.integers(0, 24), max_size=25),
    clones=st.lists(IDS, max_size=3).map(tuple),
    stale_machines=st.lists(st.builds(PlacedMachine, node=IDS, machine=IDS), max_size=3).map(tuple),
)


@given(SEENS)
def test_what_is_known_of_a_machine_survives_being_stored(seen: OvcVmSeen) -> None:
    assert msgspec.json.decode(to_json(seen), type=OvcVmSeen) == seen


@given(IDS, st.sets(IDS, min_size=2, max_size=8))
def test_a_machine_stays_where_it_is_put_when_another_node_leaves(vm: str, nodes: set[str]) -> None:
    def chosen(among: set[str]) -> str:
        return max(among, key=lambda node: _node_weight(vm, node))

    first = chosen(nodes)
    for other in nodes - {first}:
        assert chosen(nodes - {other}) == first


@given(IDS, IDS)
def test_names_that_are_derived_differ_where_what_they_are_derived_from_does(one: str, other: str) -> None:
    for derived in (boot_disk_id, added_disk_id, lambda op: machine_key("vm-1", f"{op}{op}")):
        same_tail = one[-8:] == other[-8:]
        assert (derived(one) == derived(other)) == (one == other) or same_tail


@pytest.mark.parametrize("name", ["", " ", "a/b", " a", "a ", "a\nb", "x" * 101])
def test_names_that_could_not_be_typed_are_refused(name: str) -> None:
    with pytest.raises(BadInput):
        parse_spec(to_json({"name": name}), AccountSpec)


@pytest.mark.parametrize("name", ["a", "web 1", "Büro", "x" * 100, "a-b_c.d:e"])
def test_names_that_people_give_are_taken(name: str) -> None:
    assert parse_spec(to_json({"name": name}), AccountSpec).name == name


@pytest.mark.parametrize("more", [{"gib": 0}, {"gib": 2001}, {"colour": "red"}, {"image": 7}])
def test_a_spec_that_makes_no_sense_is_refused_with_its_field(more: dict[str, object]) -> None:
    spec = {"name": "x", "account": "a", "cloudspace": "c", "image": "i", **more}
    with pytest.raises(BadInput, match=next(iter(more))):
        parse_spec(to_json(spec), OvcVmSpec)
