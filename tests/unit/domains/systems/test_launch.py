"""The commands of a service's own processes."""

from stateward.domains.systems.backends.local.instance_command import share_room
from stateward.domains.systems.backends.local.instance_dir import PROXY, InstanceOrder
from stateward.domains.systems.backends.local.launch import PROXY_PROGRAM, _proxy_command
from stateward.domains.systems.definition import Service


def test_a_proxy_that_an_earlier_version_ordered_is_started_from_the_present_program() -> None:
    command = ("python", "-I", "-S", "/earlier/version/gate.py", "ready.json", "8080")
    order = InstanceOrder(PROXY, PROXY, Service(command=command), port=8080)
    assert _proxy_command(order) == ("python", "-I", "-S", PROXY_PROGRAM, "ready.json", "8080")


def test_two_outputs_share_their_room() -> None:
    assert share_room(b"o" * 10, b"", 10) == (b"o" * 10, b"")
    assert share_room(b"o" * 20, b"e" * 3, 10) == (b"o" * 7, b"e" * 3)
    assert share_room(b"o" * 20, b"e" * 20, 10) == (b"o" * 5, b"e" * 5)
    assert share_room(b"o", b"e" * 20, 10) == (b"o", b"e" * 9)
