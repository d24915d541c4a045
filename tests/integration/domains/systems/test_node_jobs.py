"""Jobs on nodes, with simulated agents: runs, retries, losses, cancellation, logs."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from stateward.domains.systems.backends.port import InstancePhase, ServiceRef, job_run_ref
from stateward.domains.systems.model import JobRunSeen, seen_of
from stateward.engine import Accepted
from stateward.store.port import Store
from stateward.store.records import Operation, Status
from tests.integration.domains.systems.conftest import HOME, NS
from tests.integration.domains.systems.simulated_nodes import (
    SimulatedNode,
    SimulatedNodes,
    SimulatedNodeSite,
    simulated_nodes,
)
from tests.waiting import until


def report(how: str = "history: 5") -> str:
    return f"jobs: {{report: {{command: work, backoff: 0.05, {how}}}}}"


@pytest.fixture
async def nodes(new_store: Callable[[], Store], tmp_path: Path) -> AsyncIterator[SimulatedNodes]:
    async with simulated_nodes(new_store(), tmp_path) as opened:
        yield opened


async def ended(nodes: SimulatedNodes, accepted: Accepted) -> tuple[Operation, JobRunSeen]:
    found = await nodes.ended(accepted)
    return found, seen_of(await nodes.engine.record(NS, accepted.object.id), JobRunSeen)


async def test_a_run_succeeds_on_nodes_after_its_retries(nodes: SimulatedNodes) -> None:
    await nodes.join("a", "b")
    for one in nodes.nodes.values():
        one.site.ends = {"0-0": 0, "1-0": 3, "1-1": 0}
    assert (await nodes.deploy(report("completions: 2, parallelism: 2, retries: 1"))).status is Status.SUCCEEDED
    operation, seen = await ended(nodes, await nodes.jobs.run("shop", "/report"))
    assert (operation.status, seen) == (Status.SUCCEEDED, JobRunSeen(succeeded=2, failed=1))
    assert {name: len(where) for name, where in nodes.started().items()} == {"0-0": 1, "1-0": 1, "1-1": 1}


async def test_a_run_waits_for_a_node_with_room(nodes: SimulatedNodes) -> None:
    await nodes.deploy(report())
    accepted = await nodes.jobs.run("shop", "/report")
    await until(lambda: says(nodes, accepted, "waits: no node has room: asked is a slot; no node takes instances"))
    await nodes.join("a")
    nodes.nodes["a"].site.ends = {"0-0": 0}
    operation, seen = await ended(nodes, accepted)
    assert (operation.status, operation.attempts, seen) == (Status.SUCCEEDED, 1, JobRunSeen(succeeded=1))


async def says(nodes: SimulatedNodes, accepted: Accepted, text: str) -> bool:
    return text in [one.text for one in await nodes.engine.store.reader.progress_of(accepted.op.key, 0)]


async def begun(nodes: SimulatedNodes) -> tuple[Accepted, str]:
    """Start a run of one instance that does not end by itself; returns its node."""
    accepted = await nodes.jobs.run("shop", "/report")
    await until(lambda: is_up(nodes, accepted))
    ((name, (node,)),) = nodes.started().items()
    assert name == "0-0"
    return accepted, node


def ref_of(accepted: Accepted) -> ServiceRef:
    return job_run_ref(HOME, "/report", accepted.object.id.partition("@")[2])


async def is_up(nodes: SimulatedNodes, accepted: Accepted) -> bool:
    return [one.phase for one in await nodes.backend.instances(ref_of(accepted))] == [InstancePhase.UP]


async def logs(nodes: SimulatedNodes, accepted: Accepted) -> dict[str, str]:
    return {one.instance: one.text or one.why for one in await nodes.backend.logs(ref_of(accepted), None, None, 1_000)}


async def test_a_run_on_a_lost_node_is_not_started_again_without_a_retry(nodes: SimulatedNodes) -> None:
    await nodes.join("a", "b")
    await nodes.deploy(report())
    accepted, node = await begun(nodes)
    await nodes.lose(node)
    operation, seen = await ended(nodes, accepted)
    assert operation.error == f"1 instance failed, with 0 retries: 0-0 its node {node} was lost"
    assert seen == JobRunSeen(failed=1, reason="retries")
    assert nodes.started() == {"0-0": [node]}
    (why,) = (await logs(nodes, accepted)).values()
    assert f"the agent of node {node}: it is not connected" in why
    nodes.nodes[node].connect(nodes)  # it has not lost its disk
    await until(lambda: nodes.is_node(node, "ready"))
    assert await logs(nodes, accepted) == {"0-0": "output of 0-0\n"}


async def test_a_retry_runs_on_another_node_after_the_first_is_lost_and_not_before(nodes: SimulatedNodes) -> None:
    await nodes.join("a", "b")
    await nodes.deploy(report("retries: 1"))
    accepted, node = await begun(nodes)
    nodes.nodes[node].cut()  # without a word of it, the instance may still run
    await until(lambda: nodes.is_disconnected(node))
    assert nodes.started() == {"0-0": [node]}
    (other,) = nodes.nodes.keys() - {node}
    nodes.nodes[other].site.ends = {"0-1": 0}
    await nodes.lose(node)
    operation, seen = await ended(nodes, accepted)
    assert (operation.status, seen) == (Status.SUCCEEDED, JobRunSeen(succeeded=1, failed=1))
    assert nodes.started() == {"0-0": [node], "0-1": [other]}


async def test_a_cancelled_run_keeps_its_logs_until_it_is_forgotten(nodes: SimulatedNodes) -> None:
    await nodes.join("a")
    site = nodes.nodes["a"].site
    await nodes.deploy(report("history: 1"))
    accepted, _ = await begun(nodes)
    await nodes.jobs.cancel("shop", accepted.object.id)
    operation, _ = await ended(nodes, accepted)
    assert (operation.status, str(operation.error).partition(" (after ")[0]) == (Status.CANCELLED, "cancelled by ann")
    assert site.halted == set(site.orders)
    assert await logs(nodes, accepted) == {"0-0": "output of 0-0\n"}
    assert [one.id for one in await nodes.node_actions.instances("a")] == []  # it takes no room
    assert (await nodes.ended(await nodes.node_actions.act("a", "drain"))).status is Status.SUCCEEDED
    await nodes.node_actions.act("a", "uncordon")
    site.ends = {"0-0": 0}
    second = await nodes.jobs.run("shop", "/report")
    await ended(nodes, second)
    await until(lambda: is_forgotten(site, accepted))
    assert await logs(nodes, second) == {"0-0": "output of 0-0\n"}
    assert (await nodes.deploy("jobs: {}")).status is Status.SUCCEEDED
    await until(lambda: is_forgotten(site, second))


async def is_forgotten(site: SimulatedNodeSite, accepted: Accepted) -> bool:
    return not any(accepted.object.id.partition("@")[2] in name for name in site.orders)


async def test_a_deadline_stops_what_runs_and_a_hook_on_a_node_fails_its_deploy(nodes: SimulatedNodes) -> None:
    await nodes.join("a")
    await nodes.deploy(report("deadline: 1"))
    accepted, _ = await begun(nodes)
    operation, seen = await ended(nodes, accepted)
    assert (operation.error, seen.reason) == ("not done within 1 s", "deadline")
    nodes.nodes["a"].site.ends = {"0-0": 4}
    failed = await nodes.deploy("jobs: {migrate: {command: work, hook: before-deploy}}")
    assert failed.status is Status.FAILED
    assert "0-0 ended with 4" in (failed.error or "")


async def test_a_run_goes_on_after_the_process_was_replaced_and_no_attempt_is_made_twice(
    new_store: Callable[[], Store], tmp_path: Path
) -> None:
    async with simulated_nodes(new_store(), tmp_path) as first:
        await first.join("a", "b")
        await first.deploy(report("completions: 3, parallelism: 2, retries: 1"))
        accepted = await first.jobs.run("shop", "/report")
        await until(lambda: are_started(first, {"0-0", "1-0"}))
        known = first.nodes
        for one in known.values():
            one.cut()
    for one in known.values():
        one.site.ends = {"0-0": 0, "1-0": 7, "1-1": 0, "2-0": 0}  # two of them end while nobody looks
    async with simulated_nodes(new_store(), tmp_path, is_new=False) as second:
        second.nodes = {name: SimulatedNode(name, one.site) for name, one in known.items()}
        for one in second.nodes.values():
            one.connect(second)
        operation, seen = await ended(second, accepted)
        assert (operation.status, seen) == (Status.SUCCEEDED, JobRunSeen(succeeded=3, failed=1))
        assert {name: len(where) for name, where in second.started().items()} == {
            "0-0": 1, "1-0": 1, "1-1": 1, "2-0": 1,
        }  # fmt: skip


async def are_started(nodes: SimulatedNodes, names: set[str]) -> bool:
    return set(nodes.started()) == names


async def test_an_instance_that_cannot_be_started_has_failed(nodes: SimulatedNodes) -> None:
    await nodes.join("a")
    nodes.nodes["a"].site.failure = "no such folder"
    await nodes.deploy(report())
    operation, seen = await ended(nodes, await nodes.jobs.run("shop", "/report"))
    assert operation.error == "1 instance failed, with 0 retries: 0-0 no such folder"
    assert seen == JobRunSeen(failed=1, reason="retries")
