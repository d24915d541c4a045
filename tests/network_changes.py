"""Tests in a browser beside tests that make networks.

Chromium ends all its requests when an interface or an address of the host changes, whether they use it or not
(ERR_NETWORK_CHANGED). Containers and network namespaces of other tests do just that. So tests that change the network
run while no test in a browser does. What others change cannot be helped: a test in a browser that fails while the
network of the host has changed says nothing, and is run again.
"""

import fcntl
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

MAX_RUNS = 1 if "ORDER_SEED" in os.environ else 3  # `make flake` repeats nothing
LINKS, IPV4_ADDRESSES, IPV6_ADDRESSES = 0x1, 0x10, 0x100
"""The groups of netlink's messages about changes."""


NETWORK_NAMESPACES = frozenset({"test_node_networks.py"})
"""Files with tests that make network namespaces."""


class NetworkWatch:
    """Hears of changes of the host's interfaces and addresses."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, LINKS | IPV4_ADDRESSES | IPV6_ADDRESSES))
        self._socket.setblocking(False)

    def has_changed(self) -> bool:
        """Tell whether something has changed since the last call."""
        changed = False
        while True:
            try:
                self._socket.recv(65_536)
            except BlockingIOError:
                return changed
            except OSError:  # there were more messages than the kernel keeps
                pass
            changed = True

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


@contextmanager
def network_turn(*, changes: bool) -> Iterator[None]:
    """Share the host's network with others that change it, or with others that watch it; who comes first is first."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:  # nothing runs at the same time
        yield
        return
    parts = ("gate", "changes", "watches") if changes else ("gate", "watches", "changes")
    names = (Path(tempfile.gettempdir(), f"network-{part}-{run}") for part in parts)
    gate, own, other = (os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) for name in names)
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)  # who waits for the others to end lets nobody overtake
        fcntl.flock(other, fcntl.LOCK_EX)
        fcntl.flock(own, fcntl.LOCK_SH)
        fcntl.flock(other, fcntl.LOCK_UN)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield
    finally:
        for one in (own, other, gate):
            fcntl.flock(one, fcntl.LOCK_UN)  # a child process may have the file still open
            os.close(one)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run tests in browsers and tests that change the network in turns."""
    changes, watches = _changes_network(item), _uses_browser(item)
    if sys.platform != "linux" or not (changes or watches):
        return None
    with network_turn(changes=changes):
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = _run_again(item, nextitem) if watches else runtestprotocol(item, nextitem=nextitem, log=False)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run_again(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    """Run a test in a browser, and again if it fails while the network changes."""
    watch = NetworkWatch()
    try:
        for run in range(1, MAX_RUNS + 1):
            watch.has_changed()
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            if run == MAX_RUNS or not any(one.failed for one in reports) or not watch.has_changed():
                break
            item._initrequest()  # type: ignore[attr-defined]  # as plug-ins that repeat tests do
        return reports
    finally:
        watch.close()


def _changes_network(item: pytest.Item) -> bool:
    return item.path.name in NETWORK_NAMESPACES or any("podman" in one for one in getattr(item, "fixturenames", ()))


def _uses_browser(item: pytest.Item) -> bool:
    return "browser" in getattr(item, "fixturenames", ()) or hasattr(getattr(item, "module", None), "sync_playwright")
