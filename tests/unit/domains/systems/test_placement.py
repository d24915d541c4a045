"""The placement of instances on nodes."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stateward.domains.systems.errors import NodesFull
from stateward.domains.systems.nodes.placement import InstanceNeeds, NodeRoom, choose_host, fits

ZONES = st.sampled_from(["a", "b"])
ROOMS = st.builds(
    NodeRoom,
    name=st.text("xyz", min_size=1, max_size=4),
    labels=st.fixed_dictionaries({"zone": ZONES}),
    cpu=st.integers(0, 8).map(float),
    memory=st.integers(0, 64),
    slots=st.integers(0, 6),
)
NEEDS = st.builds(
    InstanceNeeds,
    cpu=st.sampled_from([0.0, 0.5, 1.0]),
    memory=st.integers(0, 16),
    labels=st.one_of(st.just({}), st.fixed_dictionaries({"zone": ZONES})),
    pool_slots=st.one_of(st.none(), st.integers(1, 3)),
)


def added(room: NodeRoom, needs: InstanceNeeds) -> NodeRoom:
    """Return a node with one more instance."""
    return replace(
        room,
        used_cpu=room.used_cpu + needs.cpu,
        used_memory=room.used_memory + needs.memory,
        used_slots=room.used_slots + 1,
        same_service=room.same_service + 1,
        same_pool=room.same_pool + 1,
    )


@given(st.lists(ROOMS, max_size=5, unique_by=lambda one: one.name), NEEDS, st.integers(1, 20))
def test_no_node_gets_more_than_it_has_and_a_refusal_means_that_none_has_room(
    rooms: list[NodeRoom], needs: InstanceNeeds, many: int
) -> None:
    nodes = {one.name: one for one in rooms}
    for _ in range(many):
        try:
            chosen = choose_host(needs, nodes.values())
        except NodesFull:
            assert not any(fits(needs, one) for one in nodes.values())
            return
        nodes[chosen] = added(nodes[chosen], needs)
        after = nodes[chosen]
        assert needs.labels.items() <= after.labels.items()
        assert after.used_slots <= after.slots
        assert after.used_cpu <= after.cpu
        assert after.used_memory <= after.memory
        assert needs.pool_slots is None or after.same_pool <= needs.pool_slots


@given(st.integers(1, 5), st.integers(1, 30))
def test_the_instances_of_a_service_are_spread_evenly(count: int, many: int) -> None:
    nodes = {f"n{number}": NodeRoom(f"n{number}", slots=100) for number in range(count)}
    placed: Counter[str] = Counter(dict.fromkeys(nodes, 0))
    for _ in range(many):
        chosen = choose_host(InstanceNeeds(), nodes.values())
        nodes[chosen] = added(nodes[chosen], InstanceNeeds())
        placed[chosen] += 1
    assert max(placed.values()) - min(placed.values()) <= 1


def test_a_refusal_names_what_is_asked_and_what_is_free() -> None:
    room = NodeRoom("host-1", {"zone": "a"}, cpu=2, memory=512, slots=4, used_cpu=1.5, used_memory=100, used_slots=1)
    with pytest.raises(NodesFull) as full:
        choose_host(InstanceNeeds(1.0, 256, {"zone": "a"}), [room, NodeRoom("host-2", {"zone": "b"}, 8, 4096, 9)])
    assert str(full.value) == (
        "no node has room: asked is a slot, 1 cores, 256 MiB, labels zone=a; host-1 has 3 slots, 0.5 cores, 412 MiB"
    )


def test_containers_and_secrets_go_where_they_can_run_and_the_refusal_says_what_is_missing() -> None:
    rooms = [NodeRoom("a", slots=9), NodeRoom("b", slots=2, has_engine=True), NodeRoom("c", slots=2, secrets=True)]
    assert choose_host(InstanceNeeds(), rooms) == "a"
    assert choose_host(InstanceNeeds(container=True), rooms) == "b"
    assert choose_host(InstanceNeeds(secrets=True), rooms) == "c"
    with pytest.raises(NodesFull) as caught:
        choose_host(InstanceNeeds(container=True, secrets=True), rooms)
    assert str(caught.value) == (
        "no node has room: asked is a slot, a container engine, a connection over TLS for its secrets;"
        " a has no container engine and is not connected over TLS; b is not connected over TLS;"
        " c has no container engine"
    )


def test_without_nodes_the_refusal_says_so() -> None:
    with pytest.raises(NodesFull, match="no node takes instances"):
        choose_host(InstanceNeeds(), [])
