"""The jump to Netavark's isolation rules is kept in place where this process can do so; otherwise it warns."""

import logging
import os
from collections.abc import Awaitable, Callable

import pytest

from stateward.containers import network_isolation
from stateward.containers.network_isolation import (
    FORWARD,
    JUMP,
    NO_CHAIN,
    NO_RIGHT,
    NetworkIsolation,
    insert_jump,
)


async def rootful() -> bool:
    return False


async def rootless() -> bool:
    return True


async def debian_12() -> str:
    return "4.3.1"


async def newer() -> str:
    return "5.4.2"


class Firewall:
    """The calls of iptables by a process that is root, and how they end."""

    def __init__(self, check: int = 1, insertion: int = 0) -> None:
        self._ends = {"-C": check, "-I": insertion}
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, *words: str) -> int:
        """Run iptables."""
        self.calls.append(words)
        return self._ends[words[0]]


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.mark.parametrize(
    ("firewall", "is_kept"),
    [
        (Firewall(check=0), True),
        (Firewall(), True),
        (Firewall(check=NO_CHAIN, insertion=NO_CHAIN), True),
        (Firewall(check=NO_RIGHT, insertion=NO_RIGHT), False),
    ],
    ids=["is there", "is inserted", "is not needed", "no right"],
)
def test_the_jump_is_inserted_unless_it_is_there(firewall: Firewall, is_kept: bool) -> None:
    assert insert_jump(firewall) == is_kept
    insertion = [("-I", FORWARD, "1", *JUMP)]
    assert firewall.calls == [("-C", FORWARD, *JUMP), *(insertion if len(firewall.calls) > 1 else [])]
    assert (len(firewall.calls) == 1) == (firewall("-C") == 0)


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("is_inserted", [True, False])
async def test_networks_of_an_engine_with_root_on_this_host_are_isolated_if_the_jump_can_be_inserted(
    monkeypatch: pytest.MonkeyPatch, is_inserted: bool
) -> None:
    monkeypatch.setattr(network_isolation, "insert_jump", lambda: is_inserted)
    assert await NetworkIsolation("unix:///run/podman/podman.sock").keep(rootful, debian_12) == is_inserted


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize(("address", "is_rootless"), [("tcp://host:2376", rootful), ("unix:///run/user/1/s", rootless)])
async def test_an_old_engine_whose_rules_are_out_of_reach_is_warned_about_once(
    caplog: pytest.LogCaptureFixture, address: str, is_rootless: Callable[[], Awaitable[bool]]
) -> None:
    isolation = NetworkIsolation(address)
    with caplog.at_level(logging.WARNING):
        assert [await isolation.keep(is_rootless, debian_12) for _ in range(2)] == [False, False]
        assert await NetworkIsolation(address).keep(is_rootless, newer)
    assert len(caplog.records) == 1
    assert "networks of Podman 4.3.1 may reach each other" in caplog.text
