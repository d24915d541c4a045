"""Jobs as containers: on a simulated engine, and on a real one."""

from pathlib import Path

from stateward.containers import EngineClient
from stateward.domains.systems.backends.port import job_run_ref
from stateward.domains.systems.definition import JobDefinition, Service, Tree
from stateward.domains.systems.job_service import JobActions
from stateward.domains.systems.model import DesiredJob, JobRunSeen, seen_of, spec_of
from stateward.store.records import Status
from stateward.testing.containers import ProgramRun, SimulatedEngine, stdout
from tests.containers import PodmanService
from tests.integration.domains.systems.container_harness import HOME, NS, PATIENT, ContainerHost, run_host, shell


async def run_to_its_end(host: ContainerHost, job: JobDefinition) -> tuple[Status, JobRunSeen, dict[str, str]]:
    """Deploy and run a job; returns how it ended, and the logs of its instances."""
    deployed = await host.actions.deploy("shop", "/", Tree({}, None, {"/report": job}))
    assert (await host.engine.wait_record(NS, deployed.op.id, PATIENT)).status is Status.SUCCEEDED
    accepted = await JobActions(host.engine, NS, "ann").run("shop", "/report")
    ended = await host.engine.wait_record(NS, accepted.op.id, PATIENT)
    seen = seen_of(await host.engine.record(NS, accepted.object.id), JobRunSeen)
    ref = job_run_ref(HOME, "/report", accepted.object.id.partition("@")[2])
    logs = {one.instance: one.text for one in await host.backend.logs(ref, None, None, 1_000)}
    return ended.status, seen, logs


async def test_a_run_of_simulated_containers_is_retried_with_the_image_that_the_deploy_found(tmp_path: Path) -> None:
    programs = {"count": lambda _: ProgramRun((stdout(b"one run\n"),), 3, 0.05)}
    async with run_host(tmp_path, SimulatedEngine(["shop:1"], programs=programs)) as host:
        job = JobDefinition(Service(image="shop:1", command=("count",)), retries=1, backoff=0.05)
        status, seen, logs = await run_to_its_end(host, job)
        assert (status, seen) == (Status.FAILED, JobRunSeen(failed=2, reason="retries"))
        assert logs == {"0-0": "one run\n", "0-1": "one run\n"}
        stored = spec_of(await host.engine.record(NS, "shop.report"), DesiredJob)
        assert stored is not None
        assert stored.job.program.pinned is not None


async def test_a_run_of_real_containers_keeps_their_exit_statuses_and_output(
    podman: PodmanService, tmp_path: Path
) -> None:
    client = EngineClient(podman.address)
    async with run_host(tmp_path, client) as host:
        work = 'echo "index $STATEWARD_INDEX of $STATEWARD_JOB"; exit $STATEWARD_INDEX'
        job = JobDefinition(shell(work), completions=2, parallelism=2)
        status, seen, logs = await run_to_its_end(host, job)
        assert (status, seen) == (Status.FAILED, JobRunSeen(succeeded=seen.succeeded, failed=1, reason="retries"))
        assert logs["1-0"] == "index 1 of /report\n"
        assert await host.listed() == []
    await client.close()
