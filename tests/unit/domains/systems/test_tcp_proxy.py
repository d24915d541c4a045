"""The TCP proxy's memory of the ports to which it forwards."""

import json
from pathlib import Path

from stateward.domains.systems.backends.local.tcp_proxy import TcpProxy


def test_ports_that_are_gone_are_forgotten_once_no_connection_uses_them(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    file.write_text(json.dumps([1, 2]))
    proxy = TcpProxy(str(file))
    assert proxy.ports() == [1, 2]
    proxy._busy.update({1: 1, 2: 1})
    proxy._busy[2] -= 1
    proxy._suspect_until.update({1: 5.0, 2: 5.0, 3: 5.0})
    replaced = file.with_suffix(".new")
    replaced.write_text(json.dumps([3, 4]))
    replaced.replace(file)
    assert proxy.ports() == [3, 4]
    assert (proxy._busy, proxy._suspect_until) == ({1: 1}, {3: 5.0})
