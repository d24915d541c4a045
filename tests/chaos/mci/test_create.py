"""The create of an MCI, with kill -9 at every step: it goes on, nothing is made twice, and nothing is left over."""

from pathlib import Path
from typing import Any

import pytest

from stateward.domains.mci.model import (
    CloudConnection,
    CommandRun,
    CommandRuns,
    ImageRecord,
    MciSpec,
    PostCommand,
    SpecRecord,
    SubGroup,
    mci_seen,
    vm_of,
)
from stateward.domains.mci.remote.vm_shells import NO_SHELL_OUTPUT
from stateward.drivers import Observation
from stateward.store import open_store
from stateward.store.records import Status
from tests.chaos.mci.conftest import CREDENTIAL, Lives, MakeLives
from tests.chaos.mci.domain_process import NS, Plan
from tests.integration.domains.mci.conftest import MciHarness, open_harness
from tests.integration.drivers.aws.conftest import session
from tests.integration.drivers.aws.ec2_machines import describe_machines
from tests.integration.drivers.aws.moto_cloud import REGION
from tests.integration.drivers.aws.moto_images import IMAGE
from tests.integration.drivers.aws.test_lifecycle import tags_of
from tests.integration.drivers.local.host_machines import live_processes_in, needs_qemu, ssh_servers_in
from tests.long_forms import in_long_form
from tests.servers import PostgresServer

SIZE = 3
PREPARATION = ("mci.mci Preparing", "mci.vnet Configuring", "ensure sent", "ensure answered", "mci.vnet Available")
PROVISIONING = ("mci.mci Creating", "create sent", "create answered", "mci.vm Running")
ON_HOST = ("recorded", "started", "settled")
POST_COMMAND = ("post-command sent", "post-command answered")


def wanted(group: SubGroup, *, hold: bool = True) -> MciSpec:
    """Ask for an MCI that holds, and runs something in the end."""
    return MciSpec("m1", "uid-m1", (group,), hold=hold, post_command=PostCommand("", ("echo done",), 1.0))


def crash_at_every_step(lives: Lives, preparation: tuple[str, ...], provisioning: tuple[str, ...]) -> None:
    """Die at every step of one create, and come back each time; what was held before is held again."""
    for point in preparation:
        lives.die_at(point)
    lives.kill_at("mci.mci Prepared")
    for point in provisioning:
        lives.die_at(point, "--go-on")
    assert lives.live_on("--go-on") == "Running"
    assert lives.deaths == len(preparation) + len(provisioning) + 1


async def look(lives: Lives, connection: str) -> tuple[MciHarness, dict[str, Observation]]:
    """Look at what has become of it: the harness, closed again, and what the provider shows."""
    async with open_harness(open_store(lives.store), lives.folder) as harness:
        assert await harness.state() == "Running"
        vms = await harness.service.vms(NS, "m1")
        assert [one.state for one in vms] == ["Running"] * SIZE
        assert await harness.plugin.reconciler.reconcile_all() == []
        listing = await (await harness.plugin.clients.by_name(connection)).list_now()
        assert {one.key for one in listing.machines} == {vm_of(one).uid for one in vms}
        assert len(listing.machines) == SIZE
        await check_history(harness)
        return harness, {one.key: one for one in listing.machines}


async def check_history(harness: MciHarness) -> None:
    """Each thing was done once, and by one operation, however often it was taken up again."""
    lines = await harness.engine.history(NS, "m1")
    assert [line.target for line in lines if line.target] == ["Preparing", "Prepared", "Creating", "Running"]
    assert sum(line.event == "put back" for line in lines) > 0
    operation = lines[0].op
    assert operation is not None
    assert (await harness.engine.wait_record(NS, operation, 10.0)).status is Status.SUCCEEDED
    for vm in await harness.service.vms(NS, "m1"):
        made = [line.target for line in await harness.engine.history(NS, vm.id) if line.target]
        assert made == ["Creating", "Running"]


async def results(lives: Lives) -> dict[str, CommandRuns]:
    async with open_harness(open_store(lives.store), lives.folder) as harness:
        return mci_seen(await harness.service.mci(NS, "m1")).results


@pytest.fixture
def credential(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process reach what the lives reach."""
    for name, value in CREDENTIAL.items():
        monkeypatch.setenv(name, value)


def on_this_host(kind: str, *, store: str = "") -> Plan:
    return Plan(
        wanted(SubGroup("g1", SIZE, "small-one", "an-image")),
        [CloudConnection("lab", "lab", "here", driver=kind, namespaces=(NS,))],
        [SpecRecord("small-one", "lab", "tiny")],
        [ImageRecord("an-image", "lab", "sh" if kind == "process" else "tick")],
        store,
    )


def on_ec2(cloud_url: str, *, store: str = "") -> Plan:
    group = SubGroup("g1", SIZE, f"aws+{REGION}+t3.nano", "hill", connection="ec2")
    options = {"endpoint_url": cloud_url}
    connection = CloudConnection("ec2", "aws", REGION, driver="aws", credential="env:FARM", options=options)
    return Plan(wanted(group), [connection], images=[ImageRecord("hill", "ec2", IMAGE)], store=store)


async def check_this_host(lives: Lives, kind: str) -> None:
    """Nothing runs on this host but what is shown, each was started once, and each was told what to do."""
    _, seen = await look(lives, "lab")
    folder: Path = lives.folder / "machines" / kind / "here"
    machines = {*live_processes_in(folder)} - {*ssh_servers_in(folder)}
    assert sorted(machines) == sorted(int(one.details["pid"]) for one in seen.values())
    assert {one.details["boots"] for one in seen.values()} == {"1"}
    written = await results(lives)
    assert written.keys() == {"g1-1", "g1-2", "g1-3"}
    run = CommandRun("done\n", 0) if kind == "process" else CommandRun(NO_SHELL_OUTPUT)
    assert set(written.values()) == {(run,)}


async def check_ec2(lives: Lives, cloud_url: str) -> None:
    """Nothing is there but what is shown, and each part of it once."""
    await look(lives, "ec2")
    ec2 = session().client("ec2", region_name=REGION, endpoint_url=cloud_url)
    machines = describe_machines(ec2)
    assert [one["State"]["Name"] for one in machines] == ["running"] * SIZE
    assert len({tags_of(one)["stateward:key"] for one in machines}) == SIZE
    assert [len(found) for found in ours(ec2)] == [1, 1, 1, 1]
    ec2.close()
    assert (await results(lives)).keys() == {"g1-1", "g1-2", "g1-3"}


@pytest.mark.parametrize("kind", ["process", pytest.param("qemu", marks=[needs_qemu, pytest.mark.long])])
async def test_machines_on_this_host_are_made_once_though_their_maker_is_killed_at_every_step(
    lives_of: MakeLives, kind: str
) -> None:
    lives = lives_of(on_this_host(kind))
    preparation = tuple(point for point in PREPARATION if not point.startswith("ensure"))
    provisioning = (*PROVISIONING[:2], *ON_HOST, *PROVISIONING[2:], *POST_COMMAND)
    crash_at_every_step(lives, preparation, provisioning)
    await check_this_host(lives, kind)


ALL_POINTS = [*PREPARATION, *PROVISIONING, *POST_COMMAND]
CALLS = [point for point in ALL_POINTS if point.endswith((" sent", " answered"))]


@pytest.mark.parametrize("points", in_long_form([CALLS, ALL_POINTS], short=[CALLS]), ids=len)
async def test_machines_on_ec2_are_made_once_though_their_maker_is_killed_at_every_step(
    lives_of: MakeLives, cloud_url: str, credential: None, points: list[str]
) -> None:
    """The suite kills it around the calls of the provider; the other steps are those of machines on this host, too."""
    lives = lives_of(on_ec2(cloud_url))
    preparation, provisioning = (
        tuple(point for point in steps if point in points) for steps in (PREPARATION, (*PROVISIONING, *POST_COMMAND))
    )
    crash_at_every_step(lives, preparation, provisioning)
    await check_ec2(lives, cloud_url)


# On a store that is shared, the next one cannot know that the former is dead, and waits until its lease has passed.
# That takes its time, so each driver dies at some of the steps there.


@pytest.mark.parametrize(
    ("kind", "preparation", "provisioning"),
    [
        # Of two steps of a creation, the second is not reached if the first life has made all machines.
        ("process", PREPARATION[1:2], ("create answered", POST_COMMAND[0])),
        pytest.param(
            "qemu",
            PREPARATION[:1],
            ("recorded", "settled", "mci.vm Running", POST_COMMAND[1]),
            marks=[needs_qemu, pytest.mark.long],
        ),
    ],
    ids=["process", "qemu"],
)
async def test_machines_on_this_host_are_made_once_though_others_cannot_know_that_their_maker_is_dead(
    lives_of: MakeLives,
    postgres_server: PostgresServer,
    kind: str,
    preparation: tuple[str, ...],
    provisioning: tuple[str, ...],
) -> None:
    lives = lives_of(on_this_host(kind, store=postgres_server.new_database()))
    crash_at_every_step(lives, preparation, provisioning)
    await check_this_host(lives, kind)


@pytest.mark.long
async def test_machines_on_ec2_are_made_once_though_others_cannot_know_that_their_maker_is_dead(
    lives_of: MakeLives, postgres_server: PostgresServer, cloud_url: str, credential: None
) -> None:
    lives = lives_of(on_ec2(cloud_url, store=postgres_server.new_database()))
    crash_at_every_step(lives, PREPARATION[2:], ("mci.mci Creating", *PROVISIONING[1:3], POST_COMMAND[0]))
    await check_ec2(lives, cloud_url)


def ours(ec2: Any) -> list[list[Any]]:
    """Return the networks, subnets, security groups and keys that carry a key of ours."""
    marked = [{"Name": "tag-key", "Values": ["stateward:key"]}]
    return [
        ec2.describe_vpcs(Filters=marked)["Vpcs"],
        ec2.describe_subnets(Filters=marked)["Subnets"],
        ec2.describe_security_groups(Filters=marked)["SecurityGroups"],
        ec2.describe_key_pairs(Filters=marked)["KeyPairs"],
    ]
