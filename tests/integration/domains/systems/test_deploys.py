"""Deploys: what they change, what they leave alone, and how they are rolled back."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest

from stateward.domains.systems import context, deploy_handlers, system_handlers
from stateward.domains.systems.backends.port import InstanceSpec, ServiceRef, SystemRef
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.errors import LockMissing, NothingToRollBack, NotLiving
from stateward.domains.systems.lifecycle import DEPLOY, SERVICE, TEARDOWN
from stateward.domains.systems.model import ChangeSpec, spec_of
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.service import SystemActions
from stateward.engine import AlreadyExists, Denied, Engine, Locked, NotFound, Object, Request, UnitOfWork
from stateward.errors import BadInput, UnknownValue
from stateward.lifecycle import CONTROLLER
from stateward.store.port import Store
from stateward.store.records import Key, Status
from tests.integration.domains.systems.conftest import (
    HOME,
    NS,
    PATIENT,
    SHOP,
    SystemsHarness,
    before_first_end,
    ref,
    service,
)
from tests.integration.engine.pump_kinds import Plant
from tests.waiting import until

V1 = {"web": "web v1", "store.api": "api v1", "store.db": "db v1"}


async def test_a_deploy_makes_services_and_the_system_is_stable(harness: SystemsHarness) -> None:
    assert (await harness.deployed("/", SHOP)).status is Status.SUCCEEDED
    assert await harness.commands() == V1
    await harness.becomes("shop", "stable")
    assert len(await harness.backend.instances(ref("/web"))) == 2


async def test_a_deploy_of_a_path_touches_nothing_else(harness: SystemsHarness) -> None:
    await harness.deployed("/", SHOP)
    before = await harness.engine.record(NS, "shop:web")
    assert (
        await harness.deployed("/store", SHOP.replace("v1", "v2").replace("web", "cache"))
    ).status is Status.SUCCEEDED
    assert await harness.commands() == {
        "web": "web v1",
        "store.cache": "cache v2",
        "store.store.api": "api v2",
        "store.store.db": "db v2",
    }
    assert await harness.engine.record(NS, "shop:web") == before


async def test_a_service_that_refuses_for_a_while_is_asked_again(
    harness: SystemsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.deployed("/", SHOP)
    monkeypatch.setattr(deploy_handlers, "RETRY_S", 0.01)
    kind, refused = harness.engine.kinds[SERVICE.kind], set[str]()
    guard = kind.guard
    assert guard is not None

    async def refuse_twice(uow: UnitOfWork, request: Request, service: Object) -> Request | None:
        if service.id == "shop:web" and request.op not in refused and len(refused) < 2:
            refused.add(request.op)
            raise NotLiving("shop", "busy")
        return await guard(uow, request, service)

    monkeypatch.setattr(kind, "guard", refuse_twice)
    ended = await harness.deployed("/", SHOP.replace("v1", "v2"))
    assert (ended.status, len(refused)) == (Status.SUCCEEDED, 2)
    assert set((await harness.commands()).values()) == {"web v2", "api v2", "db v2"}


async def test_what_is_as_wanted_is_left_alone(harness: SystemsHarness) -> None:
    await harness.deployed("/", SHOP)
    before = [await harness.engine.record(NS, name) for name in ("shop:web", "shop:store.db")]
    await harness.deployed("/", SHOP.replace("api v1", "api v2"))
    assert [await harness.engine.record(NS, name) for name in ("shop:web", "shop:store.db")] == before


async def test_a_change_of_the_number_alone_is_scaling_and_keeps_the_instances(harness: SystemsHarness) -> None:
    await harness.deployed("/", SHOP)
    before = {one.name for one in await harness.backend.instances(ref("/web"))}
    await harness.deployed("/", SHOP.replace("instances: 2", "instances: 4"))
    assert before < {one.name for one in await harness.backend.instances(ref("/web"))}
    assert "scaling" in {line.target for line in await harness.engine.history(NS, "shop:web")}
    await harness.becomes("shop", "stable")


async def test_services_that_are_in_no_definition_any_more_are_ended(harness: SystemsHarness) -> None:
    await harness.deployed("/", SHOP)
    await harness.deployed("/store", "services: {db: {command: db v1}}")
    assert await harness.commands() == {"web": "web v1", "store.db": "db v1"}
    assert await harness.backend.instances(ref("/store/api")) == []


async def test_a_service_that_never_gets_healthy_fails_the_deploy_which_goes_back(harness: SystemsHarness) -> None:
    await harness.deployed("/", SHOP)
    healthy = await harness.engine.record(NS, "shop:store.db")
    harness.backend.fail("/web", "v2")
    wanted = SHOP.replace("web v1, instances: 2", "web v2, instances: 2, deadline: 0.3").replace("api v1", "api v2")
    ended = await harness.deployed("/", wanted)
    assert ended.status is Status.FAILED
    assert "shop:web: no progress within 0.3 s" in (ended.error or "")
    assert await harness.commands() == V1
    assert await harness.engine.record(NS, "shop:store.db") == healthy
    await harness.becomes("shop", "stable")
    assert await harness.locks() == []


async def test_an_instance_that_stops_within_its_grace_is_progress_whatever_the_deadline(
    harness: SystemsHarness,
) -> None:
    await harness.deployed("/a", service("run v1", deadline=0.2))
    harness.backend.stop_delay = 0.6
    assert (await harness.deployed("/a", service("run v2", deadline=0.2))).status is Status.SUCCEEDED


async def test_a_new_service_that_never_gets_healthy_is_gone_after_the_deploy(harness: SystemsHarness) -> None:
    harness.backend.fail("/new")
    ended = await harness.deployed("/new", service(deadline=0.3))
    assert ended.status is Status.FAILED
    assert await harness.states() == {}
    assert await harness.backend.instances(ref("/new")) == []


async def test_a_deploy_is_judged_by_its_own_subtree(harness: SystemsHarness) -> None:
    await harness.deployed("/", SHOP)
    harness.backend.crash(ref("/web"))
    await harness.becomes("shop", "degraded")
    assert (await harness.deployed("/store/db", service("db v2"))).status is Status.SUCCEEDED
    await harness.becomes("shop", "degraded")


async def test_a_deploy_that_is_cancelled_goes_back_and_holds_its_lock_until_then(harness: SystemsHarness) -> None:
    await harness.deployed("/", SHOP)
    harness.backend.fail("/web", "v2")
    accepted = await harness.deploy("/", SHOP.replace("v1", "v2"))
    await harness.becomes(accepted.object.id, "in progress")
    await harness.becomes("shop:web", "updating")
    await harness.actions.cancel("shop", accepted.object.id)
    ended = await harness.ended(accepted)
    assert await harness.state(accepted.object.id) == "cancelled"
    assert str(ended.error).startswith("cancelled by ann (after ")
    assert ended.status is Status.CANCELLED
    assert await harness.commands() == V1
    assert await harness.locks() == []


async def test_a_rollback_brings_back_what_was_before_the_last_deploy(harness: SystemsHarness) -> None:
    await harness.deployed("/", SHOP)
    await harness.deployed("/", SHOP.replace("v1", "v2").replace("web v2, instances: 2", "web v2"))
    assert (await harness.ended(await harness.actions.rollback("shop", None, None))).status is Status.SUCCEEDED
    assert await harness.commands() == V1
    assert len(await harness.backend.instances(ref("/web"))) == 2


async def test_rollbacks_go_back_step_by_step_until_there_is_nothing_left(harness: SystemsHarness) -> None:
    for version in ("v1", "v2", "v3"):
        await harness.deployed("/a", service(f"run {version}"))
    await harness.deployed("/b", service("other"))
    for expected in ({"a": "run v2", "b": "other"}, {"a": "run v1", "b": "other"}, {"b": "other"}):
        await harness.ended(await harness.actions.rollback("shop", "/a", None))
        assert await harness.commands() == expected
    with pytest.raises(NothingToRollBack):
        await harness.actions.rollback("shop", "/a", None)


async def test_a_rollback_of_the_last_deploy_fails_if_another_one_succeeds_while_it_waits(
    harness: SystemsHarness,
) -> None:
    for version in ("v1", "v2"):
        await harness.deployed("/web", service(f"web {version}"))
    harness.backend.fail("/web", "v3")
    third = await harness.deploy("/web", service("web v3"))

    await until(
        lambda: harness.backend.instances(ref("/web")), lambda instances: not all(one.ready for one in instances)
    )
    waiting = await harness.actions.rollback("shop", None, None, wait=PATIENT)
    named = await harness.actions.rollback("shop", None, (await harness.actions.deploys("shop"))[-1].id, wait=PATIENT)
    harness.backend.mend_all()
    harness.backend.mend(ref("/web"))
    assert (await harness.ended(third)).status is Status.SUCCEEDED
    failed = await harness.ended(waiting)
    assert failed.status is Status.FAILED
    assert f"which is {third.object.id} by now" in str(failed.error)
    assert (await harness.ended(named)).status is Status.SUCCEEDED
    assert await harness.states() == {}  # as before the first one


async def test_a_deploy_that_is_cancelled_when_it_is_about_to_succeed_goes_back(
    harness: SystemsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.deployed("/", SHOP)
    cancelled = list[str]()

    async def cancel(deploy: str) -> None:
        cancelled.append((await harness.actions.cancel("shop", deploy)).object.state)

    before_first_end(monkeypatch, "deploy", cancel)
    ended = await harness.deployed("/", SHOP.replace("v1", "v2"))
    assert cancelled == ["in progress"]
    assert (ended.status, str(ended.error)[:16]) == (Status.CANCELLED, "cancelled by ann")
    assert await harness.commands() == V1


async def test_a_deploy_that_is_named_can_be_rolled_back(harness: SystemsHarness) -> None:
    await harness.deployed("/a", service("run v1"))
    named = await harness.deploy("/a", service("run v2"))
    await harness.ended(named)
    await harness.deployed("/a", service("run v3"))
    await harness.ended(await harness.actions.rollback("shop", None, named.object.id))
    assert await harness.commands() == {"a": "run v1"}


async def test_node_pools_come_with_the_whole_system_and_limit_what_runs(harness: SystemsHarness) -> None:
    limited = "{command: x, node_pool: main, deadline: 0.3, instances: 2}"
    wanted = f"{{node_pools: {{main: {{nodes: 1, slots: 2}}}}, services: {{a: {limited}}}}}"
    assert (await harness.deployed("/", wanted)).status is Status.SUCCEEDED
    assert await harness.state("shop~main") == "stable"
    ended = await harness.deployed("/", wanted.replace("instances: 2", "instances: 3"))
    assert ended.status is Status.FAILED
    assert "node pool main is full" in (ended.error or "")
    bigger = wanted.replace("nodes: 1", "nodes: 2").replace("instances: 2", "instances: 3")
    assert (await harness.deployed("/", bigger)).status is Status.SUCCEEDED
    await harness.becomes("shop", "stable")


async def test_services_of_a_node_pool_that_is_not_stable_are_updating_until_it_is(
    harness: SystemsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = "{node_pools: {main: {}}, services: {a: {command: x, node_pool: main}, b: {command: y}}}"
    await harness.deployed("/", wanted)
    free = asyncio.Event()

    async def slow(*_: object) -> None:
        await free.wait()

    monkeypatch.setattr(harness.backend, "ensure_pool", slow)
    await harness.engine.act(NS, "shop~main", "scaling", actor=CONTROLLER)
    await harness.becomes("shop:a", "updating")
    assert await harness.state("shop:b") == "stable"
    free.set()
    for name in ("shop~main", "shop:a", "shop"):
        await harness.becomes(name, "stable")


async def test_a_service_without_its_node_pool_is_refused_before_anything_is_done(harness: SystemsHarness) -> None:
    with pytest.raises(UnknownValue, match="a known node pool, and 'main' is none"):
        await harness.deployed("/a", service(node_pool="main"))
    assert await harness.states() == {}


async def test_nothing_is_put_below_a_service(harness: SystemsHarness) -> None:
    await harness.deployed("/a", service())
    ended = await harness.deployed("/a/b", service())
    assert "nothing can be below a service" in (ended.error or "")


async def test_the_root_of_a_system_is_no_service(harness: SystemsHarness) -> None:
    with pytest.raises(BadInput):
        await harness.deploy("/", service())


async def test_a_deploy_without_its_lock_is_refused_wherever_it_is_asked_for(harness: SystemsHarness) -> None:
    with pytest.raises(LockMissing):
        await harness.engine.create(NS, "shop@1", DEPLOY.kind, "deploy", spec={"path": "/", "picture": {}})
    with pytest.raises(LockMissing):
        await harness.engine.act(NS, "shop", "delete")


async def test_a_deploy_needs_a_system_that_lives(harness: SystemsHarness) -> None:
    with pytest.raises(NotFound):
        await SystemActions(harness.engine, NS).teardown("nowhere")
    with pytest.raises(AlreadyExists):
        await harness.actions.create("shop", "simulated")


async def test_work_for_a_system_that_lives_on_another_machine_is_not_done_here(
    harness: SystemsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, hosts, asked, started = harness.backend.start, ["elsewhere"], list[str](), list[str]()

    async def prepare(home: SystemRef) -> dict[str, str]:
        asked.append(hosts[-1])
        return {"host": hosts[-1]}

    async def noted_start(ref: ServiceRef, want: InstanceSpec) -> None:
        started.append(hosts[-1])
        await start(ref, want)

    monkeypatch.setattr(context, "OTHER_HOST_RETRY_S", 0.02)
    monkeypatch.setattr(harness.backend, "prepare", prepare)
    monkeypatch.setattr(harness.backend, "start", noted_start)
    deploying = await harness.deploy("/web", service())

    await until(lambda: len(asked) > 3 or bool(started))
    hosts.append("shop")
    assert (await harness.ended(deploying)).status is Status.SUCCEEDED
    assert set(started) == {"shop"}


async def test_a_service_that_was_ill_before_does_not_fail_a_deploy_that_mends_it(harness: SystemsHarness) -> None:
    await harness.deployed("/", SHOP)
    harness.backend.crash(ref("/web"))
    await harness.becomes("shop:web", "degraded")
    assert (await harness.deployed("/web", service("web v2"))).status is Status.SUCCEEDED
    await harness.becomes("shop", "stable")


async def test_what_was_lost_is_made_again(harness: SystemsHarness) -> None:
    await harness.deployed("/", SHOP)
    harness.backend.lose(ref("/web"))

    async def two_again() -> bool:
        return len(await harness.backend.instances(ref("/web"))) == 2 and await harness.state() == "stable"

    await until(two_again)


async def test_a_crash_shows_in_the_service_and_in_the_system_and_so_does_its_end(harness: SystemsHarness) -> None:
    await harness.deployed("/", SHOP)
    harness.backend.crash(ref("/web"))
    await harness.becomes("shop", "degraded")
    assert await harness.states() == {"web": "degraded", "store.api": "stable", "store.db": "stable"}
    harness.backend.mend(ref("/web"))
    await harness.becomes("shop", "stable")


async def test_a_crash_during_a_change_fails_the_operation_of_the_system_and_is_its_reason(
    harness: SystemsHarness,
) -> None:
    await harness.deployed("/", SHOP)
    harness.backend.fail("/store/db")
    await harness.deploy("/store/db", service("db v2", deadline=60))
    await harness.becomes("shop", "updating")
    harness.backend.crash(ref("/web"))
    await harness.becomes("shop", "degraded")
    operations = await harness.engine.store.reader.operations_of(Key(NS, "shop"), 50)
    failed = [one for one in operations if one.status is Status.FAILED]
    assert [one.action for one in failed] == ["updating"]
    assert str(failed[0].error).startswith("service shop:web is degraded: instance ")
    assert "crashed" in str(failed[0].error)


async def test_a_deploy_is_cancelled_as_a_deploy_and_not_behind_its_back(harness: SystemsHarness) -> None:
    harness.backend.fail("/a")
    accepted = await harness.deploy("/a", service(deadline=600))
    await harness.becomes(accepted.object.id, "in progress")
    await harness.engine.cancel(NS, accepted.op.id, "bob")
    ended = await harness.ended(accepted)
    assert (ended.status, str(ended.error).partition(" (after ")[0]) == (Status.CANCELLED, "cancelled by bob")
    assert (await harness.state(accepted.object.id), await harness.states()) == ("cancelled", {})
    with pytest.raises(Denied):
        await harness.engine.cancel(NS, accepted.op.id)


# --- leaving ---------------------------------------------------------------------------------------------------------


async def test_a_teardown_ends_all_services_and_the_system_stays(harness: SystemsHarness) -> None:
    await harness.deployed("/", "node_pools: {main: {}}\n" + SHOP)
    assert (await harness.ended(await harness.actions.teardown("shop"))).status is Status.SUCCEEDED
    assert await harness.states() == {}
    await harness.becomes("shop", "stable")
    assert await harness.plugin.context.pools(HOME) == []
    assert await harness.backend.instances(ref("/web")) == []


@pytest.mark.parametrize("state", ["stable", "degraded", "updating"])
async def test_a_system_can_be_deleted_at_any_point(harness: SystemsHarness, state: str) -> None:
    await harness.deployed("/", SHOP)
    if state == "degraded":
        harness.backend.crash(ref("/web"))
    elif state == "updating":
        harness.backend.fail("/web", "v2")
        await harness.deploy("/web", service("web v2"))
    await harness.becomes("shop", state)
    accepted = await harness.actions.delete("shop", force=True)
    assert accepted.object.state == "deleting"
    assert (await harness.ended(accepted)).status is Status.SUCCEEDED
    with pytest.raises(NotFound):
        await harness.engine.record(NS, "shop")
    assert await harness.states() == {}
    assert await harness.engine.store.reader.locks_of(Key(NS, "shop")) == []


async def test_a_forced_deletion_cancels_deploys_in_its_own_transaction(
    harness: SystemsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed after it leaves no deploy that the deletion would have to wait for."""

    async def be_killed(*_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(SystemActions, "cancel", be_killed)
    harness.backend.fail("/web")
    running = await harness.deploy("/web", service("web v1", deadline=600))
    await harness.becomes(running.object.id, "in progress")
    waiting = await harness.deploy("/web", service("web v2"), wait=600)
    deleting = await harness.actions.delete("shop", force=True)
    assert await harness.state(waiting.object.id) == "cancelled"
    assert (await harness.ended(running)).status is Status.CANCELLED
    assert (await harness.ended(deleting)).status is Status.SUCCEEDED


@pytest.mark.parametrize("stops", [True, False])
async def test_the_end_of_a_system_that_is_cancelled_is_told_as_what_became_of_its_services(
    harness: SystemsHarness, monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    await harness.deployed("/", "services: {web: {command: web v1, instances: 2}}")
    asked, stop = asyncio.Event(), harness.backend.stop

    async def stop_and_hang(one: ServiceRef, name: str) -> None:
        if stops:
            await stop(one, name)
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(harness.backend, "stop", stop_and_hang)
    deleting = await harness.actions.delete("shop")
    await asked.wait()
    await harness.engine.cancel(NS, deleting.op.id)
    ended = await harness.ended(deleting)
    monkeypatch.undo()
    (web,) = list(await harness.engine.store.reader.children_of(deleting.op.key))
    told = (ended.status, web.status, await harness.state(), (await harness.states())["web"])
    assert told == (
        (Status.FAILED, Status.FAILED, "failed", "failed")
        if stops
        else (Status.CANCELLED, Status.CANCELLED, "stable", "stable")
    )
    assert (await harness.ended(await harness.actions.delete("shop"))).status is Status.SUCCEEDED


async def test_a_deleted_system_takes_no_deploys_and_its_name_can_be_used_again(harness: SystemsHarness) -> None:
    await harness.deployed("/a", service())
    harness.backend.fail("/a", "v2")
    await harness.deploy("/a", service("run v2", deadline=600))
    deleting = await harness.actions.delete("shop", force=True)
    with pytest.raises(Locked):
        await harness.deploy("/b", service())
    await harness.ended(deleting)
    with pytest.raises(NotFound):
        await harness.deploy("/b", service())
    await harness.ended(await harness.actions.create("shop", "simulated"))
    with pytest.raises(NothingToRollBack):
        await harness.actions.rollback("shop", None, None)
    assert (await harness.deployed("/a", service())).status is Status.SUCCEEDED


async def test_a_system_whose_backend_is_unknown_fails_and_can_be_deleted(harness: SystemsHarness) -> None:
    ended = await harness.ended(await harness.actions.create("odd", "moonbase"))
    assert (ended.status, await harness.state("odd")) == (Status.FAILED, "failed")
    with pytest.raises(NotLiving):
        await harness.actions.teardown("odd")
    assert "unknown backend 'moonbase'" in (ended.error or "")


class Reluctant(SimulatedBackend):
    """A backend that fails to prepare systems until the test lets it."""

    able, asked = False, 0

    async def prepare(self, home: SystemRef) -> Mapping[str, str]:
        """Make ready for a system, or not."""
        self.asked += 1
        if not self.able:
            raise OSError("no room")
        return await super().prepare(home)


async def test_a_system_that_cannot_be_made_ready_fails_after_some_attempts_and_can_be_tried_again(
    new_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_handlers, "CREATE_ATTEMPTS", 2)
    backend = Reluctant()
    plugin = SystemsRuntime({"simulated": backend})
    engine = Engine(new_store(), plugin.kinds)
    plugin.bind_engine(engine)
    async with engine:
        harness = SystemsHarness(engine, plugin, backend, Plant())
        ended = await harness.ended(await harness.actions.create("shop", "simulated"))
        assert (ended.status, ended.error) == (Status.FAILED, "it cannot be made ready: no room")
        assert (await harness.state(), backend.asked) == ("failed", 2)
        backend.able = True
        await harness.ended(await harness.actions.retry("shop"))
        assert await harness.state() == "stable"


async def test_old_records_are_forgotten_but_what_can_be_rolled_back_is_kept(harness: SystemsHarness) -> None:
    await harness.deployed("/a", service("run v1"))
    for number in range(4):
        await harness.deployed("/b", service(f"other v{number}"))
    await harness.ended(await harness.actions.teardown("shop"))
    await harness.plugin.records.prune(HOME, kept=2)
    left = [spec.path for one in await harness.actions.deploys("shop") if (spec := spec_of(one, ChangeSpec))]
    assert left == ["/b", "/b", "/a"]
    assert [await harness.state(one.id) for one in await harness.plugin.context.changes(HOME, TEARDOWN.kind)] == [
        "succeeded"
    ]
    await harness.ended(await harness.actions.rollback("shop", "/a", None))
    assert await harness.states() == {}


async def test_the_records_of_a_system_go_with_it(harness: SystemsHarness) -> None:
    await harness.deployed("/a", service())
    await harness.ended(await harness.actions.teardown("shop"))
    await harness.ended(await harness.actions.delete("shop"))
    kinds = (DEPLOY.kind, TEARDOWN.kind)
    assert [await harness.plugin.context.changes(HOME, kind) for kind in kinds] == [[], []]


async def test_many_deploys_at_once_end_well_and_the_system_with_them(harness: SystemsHarness) -> None:
    harness.backend.delay = 0.05
    accepted = await asyncio.gather(*(harness.deploy(f"/s{number}", service()) for number in range(20)))
    ended = await asyncio.gather(*map(harness.ended, accepted))
    assert {one.status for one in ended} == {Status.SUCCEEDED}
    await harness.becomes("shop", "stable")
    assert str(CONTROLLER) in {line.actor for line in await harness.engine.history(NS, "shop")}


async def test_what_was_lost_while_nobody_looked_is_made_again_at_the_next_start(
    new_store: Callable[[], Store],
) -> None:
    for _ in range(2):  # simulated instances are gone with their process
        backend = SimulatedBackend()
        plugin = SystemsRuntime({"simulated": backend})
        engine = Engine(new_store(), plugin.kinds)
        plugin.bind_engine(engine)
        async with engine, plugin.running(engine, works=True):
            harness = SystemsHarness(engine, plugin, backend, Plant())
            with suppress(AlreadyExists):
                await harness.ended(await harness.actions.create("shop", "simulated"))
                await harness.deployed("/", SHOP)

            async def all_there(harness: SystemsHarness = harness) -> bool:
                seen = await harness.backend.instances(ref("/web"))
                return [one.ready for one in seen] == [True, True] and await harness.state() == "stable"

            await until(all_there)
