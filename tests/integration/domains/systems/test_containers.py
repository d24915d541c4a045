"""Services as real containers: rolling updates under load, rollback by digest, drift, faults of the engine."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from stateward.containers import EngineClient
from stateward.domains.systems.backends.container import engine_listing
from stateward.domains.systems.backends.container.container_backend import reach_of
from stateward.domains.systems.backends.port import InstancePhase, ServiceRef
from stateward.domains.systems.definition import HealthCheck, Resources, Service, Tree
from stateward.store.records import Status
from tests.containers import IMAGE, PodmanService
from tests.integration.domains.systems.container_harness import HOME, NS, PATIENT, ContainerHost, run_host, shell, web
from tests.integration.domains.systems.test_real_deploys import send_requests, until_revisions

MAX_TRIES = 3
REQUESTS = 60
DRAIN_S = 1.0
"""Long enough for a busy machine to accept the connections that were made before; `httpd` loses those when it ends."""


@pytest.fixture
async def host(podman: PodmanService, tmp_path: Path) -> AsyncIterator[ContainerHost]:
    client = EngineClient(podman.address)
    async with run_host(tmp_path, client) as opened:
        yield opened
    await client.close()


async def test_a_rolling_update_under_load_loses_no_request(host: ContainerHost) -> None:
    assert (await host.deployed(web=web("first", 2, address=0, drain=DRAIN_S))).status is Status.SUCCEEDED
    port = await host.backend.address(ServiceRef(HOME, "/web"), 0)
    answers: Counter[str] = Counter()
    over = asyncio.Event()
    load = [asyncio.create_task(send_requests(f"http://127.0.0.1:{port}/", answers, over)) for _ in range(3)]
    updates = 0
    while updates < 2 or sum(answers.values()) < REQUESTS:
        updates += 1
        ended = await host.deployed(web=web(f"update {updates}", 2, address=0, drain=DRAIN_S))
        assert ended.status is Status.SUCCEEDED, ended.error
        await until_revisions(answers, updates + 1)
    over.set()
    await asyncio.gather(*load)
    assert not [answer for answer in answers if answer.startswith("lost")], answers


async def test_a_rollback_brings_the_image_that_ran_before_its_tag_was_moved(
    host: ContainerHost, podman: PodmanService
) -> None:
    podman.run("tag", IMAGE, "shop:1")
    await host.deployed(web=web(image="localhost/shop:1", instances=2))
    (first,) = {one.image_id for one in await host.listed()}
    build_other_image(podman, "shop:1")
    scaled = await host.actions.deploy("shop", "/", Tree({"/web": web(image="localhost/shop:1", instances=3)}))
    assert (await host.engine.wait_record(NS, scaled.op.id, PATIENT)).status is Status.SUCCEEDED
    (second,) = {one.image_id for one in await host.listed()}  # all three, and not only the third one
    assert second != first
    undone = await host.actions.rollback("shop", None, None)
    ended = await host.engine.wait_record(NS, undone.op.id, PATIENT)
    assert ended.status is Status.SUCCEEDED, ended.error
    assert {one.image_id for one in await host.listed()} == {first}


def build_other_image(podman: PodmanService, name: str) -> None:
    """Give a name to another image."""
    made = podman.run("create", IMAGE, "true").strip()
    podman.run("commit", "--change", "LABEL other=yes", made, name)
    podman.run("rm", made)


async def do_by_hand(host: ContainerHost, podman: PodmanService, words: Sequence[str], told: Sequence[str]) -> None:
    """Do something to the container, until its instance tells so: what is put right before the next look is missed."""
    for _ in range(MAX_TRIES):
        (before,) = await host.listed()
        names = (next(iter(before.ips)), before.name) if words[0] == "network" else (before.name,)
        podman.run(*words, *names)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENT / MAX_TRIES):
                await host.until_instance(lambda one: any(text in one.why for text in told))
            return
        await host.until_instance(lambda one: one.ready and not one.why)
    pytest.fail(f"no look has told of {words}")


async def test_what_is_done_to_a_container_by_hand_is_noticed_and_put_right(
    host: ContainerHost, podman: PodmanService
) -> None:
    # A listing is to tell what was done, and not the health check, which is the first to notice on a busy machine.
    await host.deployed(web=web(health=HealthCheck(http="/", interval=0.1, failures=100)))
    killed = "killed by SIGKILL"
    for words, *told in (
        (("rm", "--force", "--time=0"), "its container was removed by somebody else", killed),  # Podman does both
        (("kill",), killed),
        (("pause",), "its container was paused by somebody else"),
        (("network", "disconnect"), "its container was changed by somebody else"),
    ):
        await do_by_hand(host, podman, words, told)
        await host.until_instance(lambda one: one.ready and not one.why)
    await host.becomes("shop", "stable")
    states = [line.target for line in await host.engine.history(NS, "shop:web")]
    assert "degraded" in states


async def test_a_volume_is_kept_across_updates_and_output_across_restarts(host: ContainerHost) -> None:
    text = "echo $0 >> /data/seen; cat /data/seen; sleep 100"
    await host.deployed(web=shell(text, volumes={"data": "/data"}))
    ended = await host.deployed(web=shell(f"{text} & wait", volumes={"data": "/data"}, read_only=True, user="0"))
    assert ended.status is Status.SUCCEEDED, ended.error
    ref = ServiceRef(HOME, "/web")
    (one,) = await host.instances()
    logs = {log.instance: log for log in await host.backend.logs(ref, None, None, 1_000)}
    assert logs[one.name].text.split() == ["sh", "sh"]
    (rest,) = await host.backend.logs(ref, one.name, 3, 1_000)
    assert (rest.text, rest.next) == ("sh\n", 6)
    assert len(logs) == 2  # the former instance has left its log


@pytest.mark.parametrize(
    ("service", "told"),
    [
        (shell("echo no database >&2; exit 3"), "ended with 3: no database"),
        (
            shell("echo starts; tail /dev/zero", resources=Resources(memory=16)),
            "perhaps because it needed more than its 16 MiB of memory: starts",
        ),
    ],
)
async def test_a_container_that_ends_at_once_is_told_with_its_last_words(
    host: ContainerHost, service: Service, told: str
) -> None:
    accepted = await host.actions.deploy("shop", "/", Tree({"/web": service}))
    await host.until_instance(lambda one: told in one.why)
    await host.actions.cancel("shop", accepted.object.id)
    await host.engine.wait_record(NS, accepted.op.id, PATIENT)
    assert await host.instances() == []


async def test_an_image_that_is_missing_fails_the_deploy_before_anything_changes(host: ContainerHost) -> None:
    await host.deployed(web=web())
    before = [one.id for one in await host.listed()]
    missing = await host.deployed(web=web(image="localhost/none:1"))
    assert missing.status is Status.FAILED
    assert "localhost/none:1" in (missing.error or "")
    assert [one.id for one in await host.listed()] == before
    done = await host.backend.run_command(ServiceRef(HOME, "/web"), None, ("sh", "-c", "id -u; exit 4"), 30.0, 1_000)
    assert (done.exit_status, done.stdout) == (4, "0\n")


async def test_an_engine_that_hangs_or_is_gone_is_told_and_its_containers_serve_on(
    host: ContainerHost, podman: PodmanService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_listing, "LIST_TIMEOUT_S", 1.0)
    await host.deployed(web=web(address=0))
    port = await host.backend.address(ServiceRef(HOME, "/web"), 0)
    (before,) = await host.listed()
    for silence, mend in ((podman.freeze, podman.thaw), (podman.kill, podman.start)):
        silence()
        ill = await host.until_instance(lambda one: one.phase is InstancePhase.UNKNOWN)
        assert "no answer of the container engine" in ill.why
        assert ill.ready
        await host.becomes("shop", "degraded")
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            assert (await client.get(f"http://127.0.0.1:{port}/")).status_code == 200
        mend()
        await host.becomes("shop", "stable")
    assert [one.id for one in await host.listed()] == [before.id]


async def test_an_address_leads_to_the_containers_of_an_engine_at_another_address(
    podman: PodmanService, tmp_path: Path
) -> None:
    client, elsewhere = EngineClient(podman.address), reach_of("tcp://127.0.0.2:2376")
    async with run_host(tmp_path, client, elsewhere) as host:
        ended = await host.deployed(web=web(address=0))
        assert ended.status is Status.SUCCEEDED, ended.error
        assert {port.host_ip for one in await host.listed() for port in one.ports} == {"127.0.0.2"}
        port = await host.backend.address(ServiceRef(HOME, "/web"), 0)
        answer = httpx.get(f"http://127.0.0.1:{port}/", trust_env=False, verify=False)
        assert answer.text.split()[1] == (await host.instances())[0].name
    await client.close()


async def test_a_container_has_no_rights_that_its_definition_does_not_name(host: ContainerHost) -> None:
    text = "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status; id -u; touch /x; sleep 100"
    await host.deployed(web=shell(text, user="1000:1000", read_only=True))
    (log,) = await host.backend.logs(ServiceRef(HOME, "/web"), None, None, 1_000)
    words = log.text.split()
    assert {name: words[words.index(name) + 1] for name in ("CapEff:", "CapBnd:", "NoNewPrivs:")} == {
        "CapEff:": "0" * 16,
        "CapBnd:": "0" * 16,
        "NoNewPrivs:": "1",
    }
    assert "1000" in words
    assert "Read-only file system" in log.text
