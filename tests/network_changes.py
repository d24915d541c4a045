"""Tests in a browser beside tests that make networks.

Chromium ends all its requests when an interface or an address of the host changes, whether they use it or not
(ERR_NETWORK_CHANGED). Containers and network namespaces of other tests do just that. A test in a browser that fails
while the network of the host has changed says nothing, and is run again.
"""

import socket
import sys

import pytest
from _pytest.runner import runtestprotocol

MAX_RUNS = 3
LINKS, IPV4_ADDRESSES, IPV6_ADDRESSES = 0x1, 0x10, 0x100
"""The groups of netlink's messages about changes."""


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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test in a browser again if it fails while the network changes."""
    if sys.platform != "linux" or not _uses_browser(item):
        return None
    watch = NetworkWatch()
    try:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for run in range(1, MAX_RUNS + 1):
            watch.has_changed()
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            if run == MAX_RUNS or not any(one.failed for one in reports) or not watch.has_changed():
                break
            item._initrequest()  # type: ignore[attr-defined]  # as plug-ins that repeat tests do
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    finally:
        watch.close()
    return True


def _uses_browser(item: pytest.Item) -> bool:
    return "browser" in getattr(item, "fixturenames", ()) or hasattr(getattr(item, "module", None), "sync_playwright")
