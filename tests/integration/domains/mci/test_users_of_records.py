"""Connections, namespaces and resources that others begin to use while they change or go: one request is refused.

Two engines on one PostgreSQL stand for two processes; a gate holds one transaction open while the other one tries.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from stateward.domains.mci.errors import ConnectionMoved, InUse, NoNamespace
from stateward.domains.mci.lifecycle import MCI, VM, MciState, ResourceState
from stateward.domains.mci.model import (
    CloudConnection,
    NetworkSpec,
    SecurityGroupSpec,
    SpecRecord,
    Subnet,
    network_of,
    record_id,
)
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput, StatewardError
from stateward.store.postgres import PostgresStore
from stateward.store.records import Key, Object
from tests.integration.domains.mci.conftest import ANN, NS, PATIENT, MciHarness, group, mci, open_harness
from tests.integration.domains.mci.test_new_object_guard import A_VM
from tests.integration.postgres_helpers import looking_at, until_somebody_waits
from tests.servers import PostgresServer

ACCT = CloudConnection("acct", "aws", "us-east-1")
MOVED = replace(ACCT, region="us-west-2")
NETWORK = NetworkSpec("net", "", "acct", "", "", "10.0.0.0/16", (Subnet("s", "10.0.1.0/24"),))


class TwoProcesses:
    """Two engines in front of one PostgreSQL; the first one's transaction on an object can be held."""

    def __init__(self, first: MciHarness, second: MciHarness, server: Any, dsn: str) -> None:
        self.first, self.second, self._server, self.dsn = first, second, server, dsn

    async def race(
        self, held: str, first: Coroutine[Any, Any, Any], second: Coroutine[Any, Any, Any]
    ) -> tuple[Any, Any]:
        """Begin `second` when `first` has decided on an object and not written it; return both outcomes."""
        reached, opened, apply = asyncio.Event(), asyncio.Event(), UnitOfWork.apply

        async def hold(uow: UnitOfWork) -> None:
            if not reached.is_set() and any(key.id == held for key in uow._changed):
                reached.set()
                await opened.wait()
            await apply(uow)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(UnitOfWork, "apply", hold)
            one = asyncio.create_task(outcome(first))
            await reached.wait()
            two = asyncio.create_task(outcome(second))
            blocked = asyncio.create_task(until_somebody_waits(self._server))
            await asyncio.wait([blocked, two], return_when=asyncio.FIRST_COMPLETED)
            blocked.cancel()
            opened.set()
            return await one, await two


async def outcome(work: Awaitable[Any]) -> Any:
    """Return a result, or the refusal."""
    try:
        return await work
    except StatewardError as error:
        return error


@pytest.fixture
async def two(postgres_server: PostgresServer, tmp_path: Path) -> AsyncIterator[TwoProcesses]:
    dsn = postgres_server.new_migrated_database()
    async with AsyncExitStack() as stack, asyncio.timeout(PATIENT):
        first, second = [
            await stack.enter_async_context(open_harness(PostgresStore(dsn), tmp_path, works=False)) for _ in range(2)
        ]
        await first.service.add_connection(ACCT, ANN)
        await first.service.add_namespace("lab", "", ANN)
        yield TwoProcesses(first, second, await stack.enter_async_context(looking_at(dsn)), dsn)
    postgres_server.drop_later(dsn)


def create_network(harness: MciHarness) -> Coroutine[Any, Any, tuple[Object, Any]]:
    """Request a network at the connection."""
    return harness.service.create_resource(NS, "vNet", NETWORK, ANN, wait=0.0)


async def test_a_connection_is_not_pointed_elsewhere_while_something_is_created_there(two: TwoProcesses) -> None:
    made, refused = await two.race(
        record_id("vNet", "net"), create_network(two.first), two.second.service.add_connection(MOVED, ANN)
    )
    assert isinstance(made, tuple)
    assert isinstance(refused, InUse)
    assert refused.by == [f"{NS}/{record_id('vNet', 'net')}"]
    assert (await two.second.service.catalogue.connection("acct")).region == ACCT.region


async def test_nothing_is_created_where_a_connection_led_before(two: TwoProcesses) -> None:
    moved, refused = await two.race(
        record_id("connection", "acct"), two.first.service.add_connection(MOVED, ANN), create_network(two.second)
    )
    assert moved.region == MOVED.region
    assert isinstance(refused, ConnectionMoved)
    assert await two.first.service.resources(NS, "vNet") == []


async def test_a_connection_is_not_removed_while_something_is_created_there(two: TwoProcesses) -> None:
    made, refused = await two.race(
        record_id("vNet", "net"), create_network(two.first), two.second.service.remove_connection("acct", ANN)
    )
    assert isinstance(made, tuple)
    assert isinstance(refused, InUse)


async def test_a_namespace_is_not_removed_while_something_is_created_there(two: TwoProcesses) -> None:
    made, refused = await two.race(
        "m1", two.first.service.create("lab", mci(), ANN), two.second.service.remove_namespace("lab", ANN)
    )
    assert made.object.id == "m1"
    assert isinstance(refused, InUse)
    assert not (await two.first.service.namespace("lab")).removed


async def test_nothing_is_created_in_a_namespace_that_is_being_removed(two: TwoProcesses) -> None:
    _, refused = await two.race(
        record_id("ns", "lab"),
        two.first.service.remove_namespace("lab", ANN),
        two.second.service.create("lab", mci(), ANN),
    )
    assert isinstance(refused, NoNamespace)
    assert await two.first.service.mcis("lab") == []


async def test_no_vm_outlives_an_mci_that_is_deleted_while_it_is_created(two: TwoProcesses) -> None:
    first, second = two.first, two.second
    await first.engine.create(NS, "m", MCI.kind, spec=to_builtins(mci("m", group("h"), hold=True)))
    made, deleted = await two.race(
        "m.g-1",
        first.engine.create(NS, "m.g-1", VM.kind, spec=A_VM, parent="m"),
        second.service.delete(NS, "m", "force", ANN),
    )
    assert made.object.id == "m.g-1"
    _, left = deleted
    assert [one.vm for one in left] == ["g-1"]
    assert await first.service.mcis(NS) == []
    assert await first.service.vms(NS, "m") == []


# --- resources -------------------------------------------------------------------------------------------------------

SEOUL = "aws-ap-northeast-2"
USED = NetworkSpec("net", "", SEOUL, "", "", "10.0.0.0/16", (Subnet("s", "10.0.1.0/24"), Subnet("t", "10.0.2.0/24")))
SIZE = SpecRecord("small", SEOUL, csp_name="t3.nano")
INSIDE = group("g", 1, network="net", subnet="t")
NET, SMALL = record_id("vNet", "net"), record_id("spec", "small")

Work = Callable[[MciHarness], Coroutine[Any, Any, Any]]


@pytest.fixture
async def resources(two: TwoProcesses, tmp_path: Path) -> TwoProcesses:
    """Add a network, a spec, and three MCIs without VMs in the network; one of them is to get VMs there."""
    async with open_harness(PostgresStore(two.dsn), tmp_path) as worker:
        await worker.service.create_resource(NS, "vNet", USED, ANN, PATIENT)
        await worker.service.register(NS, SIZE, ANN)
        await worker.created(mci("m0", group("h", 1, "aws+ap-northeast-1+t3.nano")))
        await worker.service.create(NS, mci("held", INSIDE, hold=True), ANN)
        await worker.until(lambda state: state == MciState.PREPARED, "held")
    await two.first.engine.create(NS, "m", MCI.kind, spec=to_builtins(mci("m", group("h", 1), hold=True)))
    return two


def new_vm(harness: MciHarness) -> Coroutine[Any, Any, Any]:
    return harness.engine.create(NS, "m.g-1", VM.kind, spec=A_VM | {"network": "net", "subnet": "t"}, parent="m")


def new_group(harness: MciHarness) -> Coroutine[Any, Any, Any]:
    return harness.service.create_resource(
        NS, "securityGroup", SecurityGroupSpec("wall", "", SEOUL, "", "", network="net"), ANN, wait=0.0
    )


def delete_network(harness: MciHarness) -> Coroutine[Any, Any, Any]:
    return harness.service.delete_resource(NS, "vNet", "net", ANN)


def remove_subnet(harness: MciHarness) -> Coroutine[Any, Any, Any]:
    return harness.service.remove_subnet(NS, "net", "t", ANN)


def unregister(harness: MciHarness) -> Coroutine[Any, Any, Any]:
    return harness.service.unregister(NS, "spec", "small", ANN)


def new_mci(harness: MciHarness) -> Coroutine[Any, Any, Any]:
    return harness.service.create(NS, mci("m1", INSIDE), ANN)


def new_mci_of_spec(harness: MciHarness) -> Coroutine[Any, Any, Any]:
    return harness.service.create(NS, mci("m1", group("g", 1, "small")), ANN)


def growth(harness: MciHarness) -> Coroutine[Any, Any, Any]:
    return harness.service.add_group(NS, "m0", INSIDE, ANN)


USES = [
    (delete_network, NET, new_mci, "m1"),
    (delete_network, NET, growth, "m0"),
    (delete_network, NET, new_group, record_id("securityGroup", "wall")),
    (remove_subnet, NET, new_vm, "m.g-1"),
    (unregister, SMALL, new_mci_of_spec, "m1"),
]
LIKE_OTHERS = [  # which have each of the two
    (delete_network, NET, new_vm, "m.g-1"),
    (remove_subnet, NET, new_mci, "m1"),
]
each_use = pytest.mark.parametrize(
    ("remove", "removed", "use", "user"),
    [*USES, *(pytest.param(*one, marks=pytest.mark.long) for one in LIKE_OTHERS)],
    ids=[f"{one[0].__name__}-{one[2].__name__}" for one in (*USES, *LIKE_OTHERS)],
)


@each_use
async def test_what_a_new_object_uses_is_not_removed(
    resources: TwoProcesses, remove: Work, removed: str, use: Work, user: str
) -> None:
    used, refused = await resources.race(user, use(resources.first), remove(resources.second))
    assert not isinstance(used, StatewardError)
    assert isinstance(refused, InUse)
    assert refused.by == [user]
    left = await resources.first.engine.record(NS, removed)
    assert left.state != ResourceState.DELETING
    assert not left.removed


@each_use
async def test_nothing_new_uses_what_is_removed(
    resources: TwoProcesses, remove: Work, removed: str, use: Work, user: str
) -> None:
    gone, refused = await resources.race(removed, remove(resources.first), use(resources.second))
    assert not isinstance(gone, StatewardError)
    assert isinstance(refused, BadInput)
    found = await resources.first.engine.store.reader.object(Key(NS, user))
    assert found is None or found.state == "Running"  # the MCI that was to grow


async def test_what_a_creation_uses_is_not_removed_when_it_continues(resources: TwoProcesses) -> None:
    continued, refused = await resources.race(
        "held",
        resources.first.service.continue_or_withdraw(NS, "held", "continue", ANN),
        delete_network(resources.second),
    )
    assert continued.object.state == MciState.CREATING
    assert isinstance(refused, InUse)
    assert refused.by == ["held"]


async def test_a_subnet_in_use_is_removed_by_force(resources: TwoProcesses) -> None:
    await new_vm(resources.first)
    await resources.first.service.remove_subnet(NS, "net", "t", ANN, force=True)
    left = network_of(await resources.first.service.resource(NS, "vNet", "net"))
    assert [one.name for one in left.subnets] == ["s"]
