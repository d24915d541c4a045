"""The browser of the tests is blind to changes of the host's network, which other tests cause."""

import os
import subprocess
import sys

import pytest

from tests.console.browser import WITHOUT_NETLINK


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has netlink")
@pytest.mark.parametrize(("family", "works"), [("AF_NETLINK", False), ("AF_INET", True), ("AF_UNIX", True)])
def test_browser_gets_no_netlink_socket(family: str, works: bool) -> None:
    program = f"import socket; socket.socket(socket.{family}, socket.SOCK_DGRAM)"
    environ = {**os.environ, "CHROMIUM": sys.executable}
    done = subprocess.run([WITHOUT_NETLINK, "-c", program], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode == 0, "Address family not supported" in done.stderr) == (works, not works)
