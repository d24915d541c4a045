"""Deploys: what they bring about, what they leave alone, and how they go back."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest

from stateward.domains.systems import context, deploy_handlers
from stateward.domains.systems.backends.port import InstanceSpec, ServiceRef, SystemRef
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.errors import LockMissing, NothingToRollBack, NotLiving
from stateward.domains.systems.lifecycle import DEPLOY, TEARDOWN
from stateward.domains.systems.model import ChangeSpec, spec_of
from stateward.domains.systems.plugin import SystemsPlugin
from stateward.domains.systems.service import SystemActions
from stateward.engine import AlreadyExists, Denied, Engine, Locked, NotFound
from stateward.errors import BadInput
from stateward.lifecycle import CONTROLLER
from stateward.store.port import Store
from stateward.store.records import Key, Status
from tests.integration.domains.systems.conftest import HOME, NS, SHOP, Stand, ref, service
from tests.integration.engine.pump_kinds import Plant

V1 = {"web": "web v1", "store.api": "api v1", "store.db": "db v1"}


async def test_a_deploy_makes_services_and_the_system_is_stable(stand: Stand) -> None:
    assert (await stand.deployed("/", SHOP)).status is Status.SUCCEEDED
    assert await stand.commands() == V1
    await stand.becomes("shop", "stable")
    assert len(await stand.backend.instances(ref("/web"))) == 2


async def test_a_deploy_of_a_path_touches_nothing_else(stand: Stand) -> None:
    await stand.deployed("/", SHOP)
    before = await stand.engine.get(NS, "shop:web")
    assert (await stand.deployed("/store", SHOP.replace("v1", "v2").replace("web", "cache"))).status is Status.SUCCEEDED
    assert await stand.commands() == {
        "web": "web v1",
        "store.cache": "cache v2",
        "store.store.api": "api v2",
        "store.store.db": "db v2",
    }
    assert await stand.engine.get(NS, "shop:web") == before


async def test_what_is_as_wanted_is_left_alone(stand: Stand) -> None:
    await stand.deployed("/", SHOP)
    before = [await stand.engine.get(NS, name) for name in ("shop:web", "shop:store.db")]
    await stand.deployed("/", SHOP.replace("api v1", "api v2"))
    assert [await stand.engine.get(NS, name) for name in ("shop:web", "shop:store.db")] == before


async def test_a_change_of_the_number_alone_is_scaling_and_keeps_the_instances(stand: Stand) -> None:
    await stand.deployed("/", SHOP)
    before = {one.name for one in await stand.backend.instances(ref("/web"))}
    await stand.deployed("/", SHOP.replace("instances: 2", "instances: 4"))
    assert before < {one.name for one in await stand.backend.instances(ref("/web"))}
    assert "scaling" in {line.target for line in await stand.engine.history(NS, "shop:web")}
    await stand.becomes("shop", "stable")


async def test_services_that_are_in_no_definition_any_more_are_ended(stand: Stand) -> None:
    await stand.deployed("/", SHOP)
    await stand.deployed("/store", "services: {db: {command: db v1}}")
    assert await stand.commands() == {"web": "web v1", "store.db": "db v1"}
    assert await stand.backend.instances(ref("/store/api")) == []


async def test_a_service_that_never_gets_healthy_fails_the_deploy_which_goes_back(stand: Stand) -> None:
    await stand.deployed("/", SHOP)
    healthy = await stand.engine.get(NS, "shop:store.db")
    stand.backend.fail("/web", "v2")
    wanted = SHOP.replace("web v1, instances: 2", "web v2, instances: 2, deadline: 0.3").replace("api v1", "api v2")
    ended = await stand.deployed("/", wanted)
    assert ended.status is Status.FAILED
    assert "shop:web: no progress within 0.3 s" in (ended.error or "")
    assert await stand.commands() == V1
    assert await stand.engine.get(NS, "shop:store.db") == healthy
    await stand.becomes("shop", "stable")
    assert await stand.locks() == []


async def test_a_new_service_that_never_gets_healthy_is_gone_after_the_deploy(stand: Stand) -> None:
    stand.backend.fail("/new")
    ended = await stand.deployed("/new", service(deadline=0.3))
    assert ended.status is Status.FAILED
    assert await stand.states() == {}
    assert await stand.backend.instances(ref("/new")) == []


async def test_a_deploy_is_judged_by_its_own_subtree(stand: Stand) -> None:
    await stand.deployed("/", SHOP)
    stand.backend.crash(ref("/web"))
    await stand.becomes("shop", "degraded")
    assert (await stand.deployed("/store/db", service("db v2"))).status is Status.SUCCEEDED
    await stand.becomes("shop", "degraded")


async def test_a_deploy_that_is_cancelled_goes_back_and_holds_its_lock_until_then(stand: Stand) -> None:
    await stand.deployed("/", SHOP)
    stand.backend.fail("/web", "v2")
    accepted = await stand.deploy("/", SHOP.replace("v1", "v2"))
    await stand.becomes(accepted.object.id, "in progress")
    await stand.becomes("shop:web", "updating")
    await stand.actions.cancel("shop", accepted.object.id)
    ended = await stand.ended(accepted)
    assert (await stand.state(accepted.object.id), ended.error) == ("cancelled", "cancelled by ann")
    assert ended.status is Status.CANCELLED
    assert await stand.commands() == V1
    assert await stand.locks() == []


async def test_a_rollback_brings_back_what_was_before_the_last_deploy(stand: Stand) -> None:
    await stand.deployed("/", SHOP)
    await stand.deployed("/", SHOP.replace("v1", "v2").replace("web v2, instances: 2", "web v2"))
    assert (await stand.ended(await stand.actions.rollback("shop", None, None))).status is Status.SUCCEEDED
    assert await stand.commands() == V1
    assert len(await stand.backend.instances(ref("/web"))) == 2


async def test_rollbacks_go_back_step_by_step_until_there_is_nothing_left(stand: Stand) -> None:
    for version in ("v1", "v2", "v3"):
        await stand.deployed("/a", service(f"run {version}"))
    await stand.deployed("/b", service("other"))
    for expected in ({"a": "run v2", "b": "other"}, {"a": "run v1", "b": "other"}, {"b": "other"}):
        await stand.ended(await stand.actions.rollback("shop", "/a", None))
        assert await stand.commands() == expected
    with pytest.raises(NothingToRollBack):
        await stand.actions.rollback("shop", "/a", None)


async def test_a_deploy_that_is_named_can_be_rolled_back(stand: Stand) -> None:
    await stand.deployed("/a", service("run v1"))
    named = await stand.deploy("/a", service("run v2"))
    await stand.ended(named)
    await stand.deployed("/a", service("run v3"))
    await stand.ended(await stand.actions.rollback("shop", None, named.object.id))
    assert await stand.commands() == {"a": "run v1"}


async def test_node_pools_come_with_the_whole_system_and_limit_what_runs(stand: Stand) -> None:
    limited = "{command: x, node_pool: main, deadline: 0.3, instances: 2}"
    wanted = f"{{node_pools: {{main: {{nodes: 1, slots: 2}}}}, services: {{a: {limited}}}}}"
    assert (await stand.deployed("/", wanted)).status is Status.SUCCEEDED
    assert await stand.state("shop~main") == "stable"
    ended = await stand.deployed("/", wanted.replace("instances: 2", "instances: 3"))
    assert ended.status is Status.FAILED
    assert "node pool main is full" in (ended.error or "")
    bigger = wanted.replace("nodes: 1", "nodes: 2").replace("instances: 2", "instances: 3")
    assert (await stand.deployed("/", bigger)).status is Status.SUCCEEDED
    await stand.becomes("shop", "stable")


async def test_services_of_a_node_pool_that_is_not_stable_are_updating_until_it_is(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = "{node_pools: {main: {}}, services: {a: {command: x, node_pool: main}, b: {command: y}}}"
    await stand.deployed("/", wanted)
    free = asyncio.Event()

    async def slow(*_: object) -> None:
        await free.wait()

    monkeypatch.setattr(stand.backend, "ensure_pool", slow)
    await stand.engine.act(NS, "shop~main", "scaling", actor=CONTROLLER)
    await stand.becomes("shop:a", "updating")
    assert await stand.state("shop:b") == "stable"
    free.set()
    for name in ("shop~main", "shop:a", "shop"):
        await stand.becomes(name, "stable")


async def test_a_service_without_its_node_pool_is_refused_before_anything_is_done(stand: Stand) -> None:
    ended = await stand.deployed("/a", service(node_pool="main"))
    assert "there is none of that name" in (ended.error or "")
    assert await stand.states() == {}


async def test_nothing_is_put_below_a_service(stand: Stand) -> None:
    await stand.deployed("/a", service())
    ended = await stand.deployed("/a/b", service())
    assert "nothing can be below a service" in (ended.error or "")


async def test_the_root_of_a_system_is_no_service(stand: Stand) -> None:
    with pytest.raises(BadInput):
        await stand.deploy("/", service())


async def test_a_deploy_without_its_lock_is_refused_wherever_it_is_asked_for(stand: Stand) -> None:
    with pytest.raises(LockMissing):
        await stand.engine.create(NS, "shop@1", DEPLOY.kind, "deploy", spec={"path": "/", "picture": {}})
    with pytest.raises(LockMissing):
        await stand.engine.act(NS, "shop", "delete")


async def test_a_deploy_needs_a_system_that_lives(stand: Stand) -> None:
    with pytest.raises(NotFound):
        await SystemActions(stand.engine, NS).teardown("nowhere")
    with pytest.raises(AlreadyExists):
        await stand.actions.create("shop", "simulated")


async def test_work_for_a_system_that_lives_on_another_machine_is_not_done_here(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, hosts, asked, started = stand.backend.start, ["elsewhere"], list[str](), list[str]()

    async def prepare(home: SystemRef) -> dict[str, str]:
        asked.append(hosts[-1])
        return {"host": hosts[-1]}

    async def noted_start(ref: ServiceRef, want: InstanceSpec) -> None:
        started.append(hosts[-1])
        await start(ref, want)

    monkeypatch.setattr(context, "OTHER_HOST_RETRY_S", 0.02)
    monkeypatch.setattr(stand.backend, "prepare", prepare)
    monkeypatch.setattr(stand.backend, "start", noted_start)
    deploying = await stand.deploy("/web", service())

    async def offered_again() -> bool:
        return len(asked) > 3 or bool(started)

    await stand.until(offered_again)
    hosts.append("shop")
    assert (await stand.ended(deploying)).status is Status.SUCCEEDED
    assert set(started) == {"shop"}


async def test_a_service_that_was_ill_before_does_not_fail_a_deploy_that_mends_it(stand: Stand) -> None:
    await stand.deployed("/", SHOP)
    stand.backend.crash(ref("/web"))
    await stand.becomes("shop:web", "degraded")
    assert (await stand.deployed("/web", service("web v2"))).status is Status.SUCCEEDED
    await stand.becomes("shop", "stable")


async def test_what_was_lost_is_made_again(stand: Stand) -> None:
    await stand.deployed("/", SHOP)
    stand.backend.lose(ref("/web"))

    async def two_again() -> bool:
        return len(await stand.backend.instances(ref("/web"))) == 2 and await stand.state() == "stable"

    await stand.until(two_again)


async def test_a_crash_shows_in_the_service_and_in_the_system_and_so_does_its_end(stand: Stand) -> None:
    await stand.deployed("/", SHOP)
    stand.backend.crash(ref("/web"))
    await stand.becomes("shop", "degraded")
    assert await stand.states() == {"web": "degraded", "store.api": "stable", "store.db": "stable"}
    stand.backend.mend(ref("/web"))
    await stand.becomes("shop", "stable")


async def test_a_deploy_is_cancelled_as_a_deploy_and_not_behind_its_back(stand: Stand) -> None:
    stand.backend.fail("/a")
    accepted = await stand.deploy("/a", service(deadline=600))
    with pytest.raises(Denied):
        await stand.engine.cancel(NS, accepted.op.id)
    await stand.actions.cancel("shop", accepted.object.id)
    await stand.ended(accepted)
    assert (await stand.state(accepted.object.id), await stand.states()) == ("cancelled", {})


# --- leaving ---------------------------------------------------------------------------------------------------------


async def test_a_teardown_ends_all_services_and_the_system_stays(stand: Stand) -> None:
    await stand.deployed("/", "node_pools: {main: {}}\n" + SHOP)
    assert (await stand.ended(await stand.actions.teardown("shop"))).status is Status.SUCCEEDED
    assert await stand.states() == {}
    await stand.becomes("shop", "stable")
    assert await stand.plugin.context.pools(HOME) == []
    assert await stand.backend.instances(ref("/web")) == []


@pytest.mark.parametrize("state", ["stable", "degraded", "updating"])
async def test_a_system_can_be_deleted_at_any_point(stand: Stand, state: str) -> None:
    await stand.deployed("/", SHOP)
    if state == "degraded":
        stand.backend.crash(ref("/web"))
    elif state == "updating":
        stand.backend.fail("/web", "v2")
        await stand.deploy("/web", service("web v2"))
    await stand.becomes("shop", state)
    accepted = await stand.actions.delete("shop", force=True)
    assert accepted.object.state == "deleting"
    assert (await stand.ended(accepted)).status is Status.SUCCEEDED
    with pytest.raises(NotFound):
        await stand.engine.get(NS, "shop")
    assert await stand.states() == {}
    assert await stand.engine.store.reader.locks_of(Key(NS, "shop")) == []


@pytest.mark.parametrize("stops", [True, False])
async def test_the_end_of_a_system_that_is_cancelled_is_told_as_what_became_of_its_services(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    await stand.deployed("/", "services: {web: {command: web v1, instances: 2}}")
    asked, stop = asyncio.Event(), stand.backend.stop

    async def stop_and_hang(one: ServiceRef, name: str) -> None:
        if stops:
            await stop(one, name)
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(stand.backend, "stop", stop_and_hang)
    deleting = await stand.actions.delete("shop")
    await asked.wait()
    await stand.engine.cancel(NS, deleting.op.id)
    ended = await stand.ended(deleting)
    monkeypatch.undo()
    (web,) = list(await stand.engine.store.reader.children_of(deleting.op.key))
    told = (ended.status, web.status, await stand.state(), (await stand.states())["web"])
    assert told == (
        (Status.FAILED, Status.FAILED, "failed", "failed")
        if stops
        else (Status.CANCELLED, Status.CANCELLED, "stable", "stable")
    )
    assert (await stand.ended(await stand.actions.delete("shop"))).status is Status.SUCCEEDED


async def test_a_deleted_system_takes_no_deploys_and_its_name_can_be_used_again(stand: Stand) -> None:
    await stand.deployed("/a", service())
    stand.backend.fail("/a", "v2")
    await stand.deploy("/a", service("run v2", deadline=600))
    deleting = await stand.actions.delete("shop", force=True)
    with pytest.raises(Locked):
        await stand.deploy("/b", service())
    await stand.ended(deleting)
    with pytest.raises(NotFound):
        await stand.deploy("/b", service())
    await stand.ended(await stand.actions.create("shop", "simulated"))
    with pytest.raises(NothingToRollBack):
        await stand.actions.rollback("shop", None, None)
    assert (await stand.deployed("/a", service())).status is Status.SUCCEEDED


async def test_a_system_whose_backend_is_unknown_fails_and_can_be_deleted(stand: Stand) -> None:
    ended = await stand.ended(await stand.actions.create("odd", "moonbase"))
    assert (ended.status, await stand.state("odd")) == (Status.FAILED, "failed")
    with pytest.raises(NotLiving):
        await stand.actions.teardown("odd")
    assert "unknown backend 'moonbase'" in (ended.error or "")


class Reluctant(SimulatedBackend):
    """A backend that cannot make anything ready, until it is told that it can."""

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
    monkeypatch.setattr(deploy_handlers, "CREATE_ATTEMPTS", 2)
    backend = Reluctant()
    plugin = SystemsPlugin({"simulated": backend})
    engine = Engine(new_store(), plugin.kinds, lease_s=3.0)
    plugin.bind_engine(engine)
    async with engine:
        stand = Stand(engine, plugin, backend, Plant())
        ended = await stand.ended(await stand.actions.create("shop", "simulated"))
        assert (ended.status, ended.error) == (Status.FAILED, "it cannot be made ready: no room")
        assert (await stand.state(), backend.asked) == ("failed", 2)
        backend.able = True
        await stand.ended(await stand.actions.retry("shop"))
        assert await stand.state() == "stable"


async def test_old_records_are_forgotten_but_what_can_be_rolled_back_is_kept(stand: Stand) -> None:
    await stand.deployed("/a", service("run v1"))
    for number in range(4):
        await stand.deployed("/b", service(f"other v{number}"))
    await stand.ended(await stand.actions.teardown("shop"))
    await stand.plugin.records.prune(HOME, kept=2)
    left = [spec.path for one in await stand.actions.deploys("shop") if (spec := spec_of(one, ChangeSpec))]
    assert left == ["/b", "/b", "/a"]
    assert [await stand.state(one.id) for one in await stand.plugin.context.changes(HOME, TEARDOWN.kind)] == [
        "succeeded"
    ]
    await stand.ended(await stand.actions.rollback("shop", "/a", None))
    assert await stand.states() == {}


async def test_the_records_of_a_system_go_with_it(stand: Stand) -> None:
    await stand.deployed("/a", service())
    await stand.ended(await stand.actions.teardown("shop"))
    await stand.ended(await stand.actions.delete("shop"))
    kinds = (DEPLOY.kind, TEARDOWN.kind)
    assert [await stand.plugin.context.changes(HOME, kind) for kind in kinds] == [[], []]


async def test_many_deploys_at_once_end_well_and_the_system_with_them(stand: Stand) -> None:
    stand.backend.delay = 0.05
    accepted = await asyncio.gather(*(stand.deploy(f"/s{number}", service()) for number in range(20)))
    ended = await asyncio.gather(*map(stand.ended, accepted))
    assert {one.status for one in ended} == {Status.SUCCEEDED}
    await stand.becomes("shop", "stable")
    assert str(CONTROLLER) in {line.actor for line in await stand.engine.history(NS, "shop")}


async def test_what_was_lost_while_nobody_looked_is_made_again_at_the_next_start(
    new_store: Callable[[], Store],
) -> None:
    for _ in range(2):  # simulated instances are gone with their process
        backend = SimulatedBackend()
        plugin = SystemsPlugin({"simulated": backend})
        engine = Engine(new_store(), plugin.kinds, lease_s=3.0)
        plugin.bind_engine(engine)
        async with engine, plugin.running(engine, works=True):
            stand = Stand(engine, plugin, backend, Plant())
            with suppress(AlreadyExists):
                await stand.ended(await stand.actions.create("shop", "simulated"))
                await stand.deployed("/", SHOP)

            async def all_there(stand: Stand = stand) -> bool:
                seen = await stand.backend.instances(ref("/web"))
                return [one.ready for one in seen] == [True, True] and await stand.state() == "stable"

            await stand.until(all_there)
