"""Measures as pure functions: processes and sockets from `/proc`, what is reported, and the verdicts of probes."""

import asyncio
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stateward.agents.local_state import Deployed
from stateward.agents.measure_reports import MeasureReporter, differs
from stateward.agents.messages import Existing
from stateward.agents.site import Health, InstanceMeasure, NodeMeasure
from stateward.domains.edge.sites.app_probes import UNKNOWN_HEALTH, ProbedApp, ProbeRunner, next_health
from stateward.domains.edge.sites.probe_specs import CommandProbe, HttpProbe, Probe, TcpProbe
from stateward.domains.edge.sites.process_meter import (
    ProcessMeter,
    assign_processes,
)
from stateward.procfs import ProcessStat, living_processes, parse_stat
from stateward.workloads.tcp_sockets import (
    ESTABLISHED,
    LISTENING,
    PROBE_SOURCE,
    TcpSocket,
    parse_sockets,
    ports_by_owner,
    read_sockets,
    socket_inodes,
    use_of_namespace,
    use_of_ports,
)
from tests.waiting import until

STAT = "17 (a) b) {state} 1 16 15 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 99 8192 5 0 0"
TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:D000 01 00000000:00000000 00:00000000 00000000     0        0 78 1 0 100 0 0 10 0
   2: 0100007F:1F90 0100007F:D001 06 00000000:00000000 00:00000000 00000000     0        0 0 1 0 100 0 0 10 0
   3: 0100007F:1F90 0100007F:D002 03 00000000:00000000 00:00000000 00000000     0        0 0 1 0 100 0 0 10 0
   4: 0100007F:0050 0100007F:D000 01 00000000:00000000 00:00000000 00000000     0        0 79 1 0 100 0 0 10 0
"""


def test_a_process_counts_with_its_ended_children_and_a_dead_one_does_not() -> None:
    sleeping = parse_stat(STAT.format(state="S"))
    assert (sleeping.ticks, sleeping.memory) == (100, 5 * os.sysconf("SC_PAGE_SIZE"))
    assert [parse_stat(STAT.format(state=state)).alive for state in "SZ"] == [True, False]
    assert os.getpid() in {one.pid for one in living_processes()}


def usage(pid: int, parent: int, session: int) -> ProcessStat:
    return ProcessStat(pid, "S", parent, session, session, 0, ticks=pid, memory=1)


def test_processes_belong_to_nodes_by_session_and_to_apps_by_descent_even_in_sessions_of_their_own() -> None:
    things = [
        Deployed("c1", "clusterinst", 1, True, parts=("c1-0", "c1-1")),
        Deployed("c1:web", "appinst", 1, True, "c1", parts=("m/0",)),
    ]
    shell, server, daemon = usage(11, 10, 10), usage(12, 11, 10), usage(13, 12, 13)
    all_ = [usage(10, 1, 10), shell, server, daemon, usage(20, 1, 20), usage(30, 1, 30)]
    owned = assign_processes(all_, things, {"c1-0": 10, "c1-1": 20}, {11: "m/0"})
    assert {one.pid for one in owned.instances["c1:web"]} == {11, 12, 13}
    assert {one.pid for one in owned.nodes["c1-0"]} == {10, 11, 12, 13}
    assert {one.pid for one in owned.instances["c1"]} == {10, 11, 12, 13, 20}


def test_an_app_that_nobody_connects_to_has_no_requests() -> None:
    things = [Deployed("c1", "clusterinst", 1, True), Deployed("c1:web", "appinst", 1, True, "c1", parts=("m/0",))]
    assert ProcessMeter("m/").measure(things, {})["c1:web"].requests == 0


def test_connections_belong_to_whoever_listens_at_their_port() -> None:
    sockets = list(parse_sockets(TABLE.splitlines()))
    ports = ports_by_owner(sockets, {77: {"web", "c1"}})
    assert ports == {"web": {8080}, "c1": {8080}}
    use = use_of_ports(sockets, ports)["web"]
    assert use.established == 1
    assert use.seen == {(8080, "0100007F:D000"), (8080, "0100007F:D001")}  # one is over, one was never open


def test_a_real_listener_is_found_among_the_sockets_of_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            sockets = read_sockets() or []
            owners = {inode: {"me"} for inode in socket_inodes(os.getpid())}
            assert port in ports_by_owner(sockets, owners)["me"]
            assert use_of_ports(sockets, {"me": {port}})["me"].established == 1


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_probes_are_no_connections_of_an_app(family: socket.AddressFamily) -> None:
    dual = family == socket.AF_INET6
    with socket.create_server(("::" if dual else "127.0.0.1", 0), family=family, dualstack_ipv6=dual) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), source_address=(PROBE_SOURCE, 0)):
            use = use_of_ports(read_sockets() or [], {"me": {port}})["me"]
            assert (use.established, use.seen) == (0, frozenset())


def test_the_connections_of_a_network_namespace_are_those_at_all_its_ports_but_not_those_of_probes() -> None:
    remote = "0100880A:{:04X}".format
    sockets = [
        TcpSocket(8000, "00000000:0000", LISTENING, 1),
        TcpSocket(8000, remote(40001), ESTABLISHED, 2),
        TcpSocket(8000, remote(40002), 0x06, 0),
        TcpSocket(8000, remote(40003), ESTABLISHED, 3),
        TcpSocket(50000, remote(5432), ESTABLISHED, 4),  # one that the container has opened itself
    ]
    use = use_of_namespace(sockets, {40003})
    assert (use.established, use.seen) == (1, frozenset({(8000, remote(40001)), (8000, remote(40002))}))


def test_the_sockets_of_a_process_that_has_ended_are_unknown() -> None:
    assert read_sockets(os.getpid()) is not None
    assert read_sockets(2**22 + 1) is None


# --- reports ---------------------------------------------------------------------------------------------------------

EXISTING = {"c1": Existing(4)}


def test_only_what_has_changed_materially_is_reported_and_what_is_gone_is_unknown() -> None:
    reporter = MeasureReporter(7)
    first = InstanceMeasure(0.5, 100 * 2**20, 3, 10, (NodeMeasure("n", True, 0.5, 2**20),), Health(True))

    def said(measure: InstanceMeasure | None) -> list[str]:
        sent = list(reporter.messages({} if measure is None else {"c1": measure}, EXISTING))
        assert all(one.notify == 7 for one in sent)
        return [name for one in sent for name in (*(f"{load.name} {load.cpu}" for load in one.loads), *one.unknown)]

    assert said(first) == ["c1 0.5"]
    assert said(first) == []
    assert said(replace(first, cpu=0.52, memory=101 * 2**20)) == []
    assert said(replace(first, cpu=0.6)) == ["c1 0.6"]
    assert said(replace(first, cpu=0.6, requests=11)) == ["c1 0.6"]
    assert said(replace(first, cpu=0.6, requests=11, health=Health(False, "bad"))) == ["c1 0.6"]
    assert said(None) == ["c1"]
    assert said(None) == []


def test_a_problem_of_the_site_is_told_when_it_begins_and_ends_and_at_the_start_of_a_connection() -> None:
    reporter = MeasureReporter(7)
    problems = ["", "", "it hangs", "it hangs", ""]
    sent = [[one.problem for one in reporter.messages({}, EXISTING, problem)] for problem in problems]
    assert sent == [[""], [], ["it hangs"], [], [""]]


def test_many_loads_go_in_several_messages() -> None:
    names = [f"c{n}" for n in range(1201)]
    sent = list(MeasureReporter(1).messages(dict.fromkeys(names, InstanceMeasure()), dict.fromkeys(names, Existing(1))))
    assert [len(one.loads) for one in sent] == [500, 500, 201]


@given(before=st.floats(0, 1e6), now=st.floats(0, 1e6))
def test_a_change_below_the_least_one_is_never_material_and_a_doubled_value_above_it_always_is(
    before: float, now: float
) -> None:
    if abs(now - before) < 1.0:
        assert not differs(before, now, 1.0)
    if now >= 2 * before + 1.0:
        assert differs(before, now, 1.0)


# --- probes ----------------------------------------------------------------------------------------------------------


@given(results=st.lists(st.booleans(), max_size=40), threshold=st.integers(1, 5))
def test_the_health_changes_after_the_threshold_in_a_row_and_not_before(results: list[bool], threshold: int) -> None:
    health = UNKNOWN_HEALTH
    for nth, good in enumerate(results):
        before, health = health, next_health(health, "" if good else "bad", threshold)
        if before.is_healthy == health.is_healthy:
            continue
        last = results[max(0, nth + 1 - threshold) : nth + 1]
        is_first_success = before.is_healthy is None and good
        assert is_first_success or (len(last) == threshold and set(last) == {health.is_healthy})
    if len(results) >= threshold and len(set(results[-threshold:])) == 1:
        assert health.is_healthy is results[-1]


@pytest.mark.parametrize(
    ("probe", "verdict"),
    [
        (HttpProbe(1, "/good"), True),
        (HttpProbe(1, "/bad"), False),
        (HttpProbe(1, "/hang", timeout_s=0.1), False),
        (TcpProbe(1), True),
        (CommandProbe("true"), True),
        (CommandProbe("false"), False),
    ],
)
async def test_a_probe_tells_the_health_of_an_app(probe: Probe, verdict: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readline()
        if b"/hang" in head:
            await reader.read()  # until the probe gives up
        else:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" if b"/good" in head else b"HTTP/1.1 500 Broken\r\n\r\n")
        writer.close()

    async def run(name: str, command: str, timeout_s: float) -> None:
        assert (name, timeout_s) == ("web", 5.0)
        if command != "true":
            raise OSError("exit code 1")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    if not isinstance(probe, CommandProbe):
        probe = replace(probe, port=server.sockets[0].getsockname()[1])
    app = ProbedApp("web", 1, replace(probe, threshold=1))
    runner = ProbeRunner(run)
    await runner.set_apps({"web": app})
    await until(lambda: runner.health()["web"].is_healthy is not None)
    assert runner.health()["web"].is_healthy is verdict
    assert bool(runner.health()["web"].reason) is not verdict
    await runner.set_apps({"web": replace(app, generation=2)})
    assert runner.health() == {"web": UNKNOWN_HEALTH}  # another generation has another health
    await runner.close()
    assert runner.health() == {}
    server.close()
    await server.wait_closed()
