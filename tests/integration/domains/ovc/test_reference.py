"""The domain against the reference model: random actions by anybody, one after the other and many at once."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from stateward.domains.ovc.drift_detector import DriftDetector
from stateward.domains.ovc.guards.node_guard import UNPOWERED_STATES
from stateward.domains.ovc.lifecycle import CLOUDSPACE, NODE, VM
from stateward.domains.ovc.model import PlacementSeen, vm_seen
from stateward.domains.ovc.nodes.driver_node import DriverNode
from stateward.domains.ovc.nodes.port import Power
from stateward.engine import Accepted, Denied
from stateward.engine.queries import list_all
from stateward.store.filters import Selector
from stateward.store.port import Store
from stateward.store.records import Object
from tests.integration.domains.ovc.ovc_harness import ADA, ANN, Cloud, open_cloud
from tests.integration.domains.ovc.reference_model import RUNS, TABLE, Model, No, Thing
from tests.long_forms import in_long_form

WHO = {"user": ANN, "admin": ADA}
CHECKED = settings(
    stateful_step_count=30,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # to shrink an example of so many real actions would take too long
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
MADE_OF = {"make vm": "cloudspace", "clone": "vm", "make disk": "account", "lose power": "vm"}
BY_ITSELF = ("lose power", "lose a firewall", "care for a node")
STEPS = st.sampled_from(
    [*("vm", "cloudspace") * 6, *("disk", "account") * 4, *("image", "make vm", "clone", "make disk") * 2, *BY_ITSELF]
)
"""The kinds of objects that a step acts on, creates, or lets drift."""
NODES = 3
PICKS = st.integers(0, 99)
MOODS = st.sampled_from(["gentle", "gentle", "gentle", "harsh", "wild"])
"""Gently: allowed actions that can be undone; harshly: all allowed actions; wildly: any action."""


class World:
    """A namespace of a cloud, and the model of it."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud, self.model = cloud, Model()

    async def create_base_objects(self) -> None:
        """Make what is there at first, in both."""
        await self.cloud.create_base_objects(NODES)
        account, box, image = self.cloud.account, self.cloud.box, self.cloud.image
        self.model.things[account] = Thing("account", "CONFIRMED")
        self.model.things[box] = Thing("cloudspace", "DEPLOYED", account, account)
        self.model.things[image] = Thing("image", "CREATED", account, account)
        self.model.things[await self.cloud.new_account()] = Thing("account", "CONFIRMED")

    def some(self, kind: str, pick: int) -> str | None:
        """Return one of the objects of a kind."""
        found = [id_ for id_, one in self.model.things.items() if one.kind == kind]
        return found[pick % len(found)] if found else None

    async def step(self, step: str, pick: int, what: int, other: int, actor: str, mood: str) -> None:
        """Make something, or do something to one of the objects there are."""
        if step == "care for a node":
            await self.care(pick, move=other % 2 == 0)
            return
        id_ = self.some("cloudspace" if step == "lose a firewall" else MADE_OF.get(step, step), pick)
        if id_ is None:
            return
        if step in ("lose power", "lose a firewall"):
            await self.lose(id_)
        elif step == "make vm":
            await self.new_vm(id_)
        elif step == "clone":
            await self.new_vm(self.model.things[id_].parent, id_)
        elif step == "make disk":
            await self.new_disk(id_)
        else:
            action = self.choice(id_, what, mood)
            disk = self.some("disk", other) if action in ("attach disk", "detach disk") else None
            await self.do(id_, action, actor, disk or "")

    def choice(self, id_: str, what: int, mood: str) -> str:
        """Return something that may be done to an object."""
        thing = self.model.things[id_]
        actions = [action for action in TABLE[thing.kind] if action != "add disk"]
        possible = [action for action in actions if thing.state in TABLE[thing.kind][action][0].split()]
        gentle = [action for action in possible if action != "destroy"]
        chosen = {"gentle": gentle, "harsh": possible, "wild": actions}[mood] or actions
        return chosen[what % len(chosen)]

    async def new_vm(self, box: str, clone_of: str = "") -> None:
        """Make a VM in both."""
        things, cloud = self.model.things, self.cloud
        space = things[box]
        image = next((id_ for id_, one in things.items() if one.kind == "image" and one.parent == space.account), "")
        source = things.get(clone_of)
        possible = (
            (space.state, things[space.account].state) == ("DEPLOYED", "CONFIRMED")
            and image != ""
            and things[image].state == "CREATED"
            and (source is None or source.state == "HALTED")
        )
        cloud.image = image or cloud.image
        cloud.account = space.account
        made = await outcome(cloud.service.create(cloud.ns, cloud.vm_spec(box, clone_of=clone_of), ANN))
        assert (made is not None) == possible
        if made is not None:
            vm = made.object.id
            await cloud.ended(made)
            things[vm] = Thing("vm", "RUNNING", box, space.account, image, clone_of)
            boot = Thing("disk", "ASSIGNED", vm, space.account, vm=vm, boot=True)
            things[cloud.boot_disk(vm)] = boot

    async def new_disk(self, account: str) -> None:
        """Make a disk in both."""
        cloud = self.cloud
        try:
            disk = await cloud.disk(account)
        except Denied:
            assert self.model.things[account].state != "CONFIRMED"
            return
        assert self.model.things[account].state == "CONFIRMED"
        self.model.things[disk] = Thing("disk", "CREATED", account, account)

    async def lose(self, id_: str) -> None:
        """Let a VM or a firewall lose its power by itself, and be looked at."""
        cloud, thing = self.cloud, self.model.things[id_]
        at = msgspec.json.decode((await cloud.get(id_)).seen, type=PlacementSeen)
        if not at.machine:
            return
        await (await cloud.plugin.nodes.get(cloud.ns, at.node)).stop(at.machine)
        await DriftDetector(cloud.engine, cloud.plugin.nodes, Random(1), every=0.0, apart=0.0).check_namespace(cloud.ns)
        assert (await cloud.service.healing(cloud.ns, 0.0)).orphans == []
        if thing.kind == "vm":
            thing.state = "HALTED"
        else:
            await cloud.service.queuer.stop(cloud.ns, id_)  # until it is there again

    async def care(self, pick: int, *, move: bool) -> None:
        """Put a node in maintenance, or bring back the one that is: by moving machines, which no state tells."""
        cloud = self.cloud
        away = [node for node in cloud.nodes if await cloud.state(node) == "MAINTENANCE"]
        if away:
            await cloud.did(away[0], "enable", ADA)
        elif move or not any(one.kind == "vm" and one.state in RUNS for one in self.model.things.values()):
            await cloud.did(cloud.nodes[pick % NODES], "maintenance", ADA, vmaction="move" if move else "stop")

    async def ask(self, id_: str, action: str, actor: str, disk: str = "") -> Accepted | None:
        """Ask for an action in both; they must agree whether it is possible."""
        try:
            does = self.model.ask(id_, action, actor, disk)
        except No:
            does = None
        args: dict[str, Any] = {"disk": disk} if disk else {}
        accepted = await outcome(self.cloud.ask(id_, action, WHO[actor], **args))
        assert (accepted is None) == (does is None), (id_, action, actor, await self.cloud.get(id_), does)
        return accepted

    async def do(self, id_: str, action: str, actor: str, disk: str = "") -> None:
        """Ask for an action in both, and wait until it has ended."""
        accepted = await self.ask(id_, action, actor, disk)
        if accepted is not None and accepted.operation is not None:
            operation = await self.cloud.ended(accepted)
            assert operation.status == "succeeded", operation

    async def agrees(self) -> None:
        """Compare the states of everything, and the books with what the nodes show."""
        chosen = list_all(self.cloud.engine.store.reader, Selector(self.cloud.ns))
        everything = [one async for one in chosen if one.kind != NODE.kind]
        states = {one.id: one.state for one in everything}
        assert {id_: state for id_, state in states.items() if id_ in self.model.things} == self.model.states()
        assert {state for id_, state in states.items() if id_ not in self.model.things} <= {"DESTROYED"}
        unpowered = [vm_seen(one) for one in everything if one.kind == VM.kind and one.state in UNPOWERED_STATES]
        assert not any(seen.machine for seen in unpowered)
        assert await self.shown() == {key: power for one in everything for key, power in wanted(one).items()}

    async def shown(self) -> dict[tuple[str, str], Power]:
        """Return what the nodes show: every machine that has power."""
        found: dict[tuple[str, str], Power] = {}
        for id_ in self.cloud.nodes:
            node = await self.cloud.plugin.nodes.get(self.cloud.ns, id_)
            assert isinstance(node, DriverNode)
            keys = [one.key for one in (await node._driver.observe()).machines]
            found |= {
                (id_, key): power for key, power in (await node.get_powers(keys)).items() if power is not Power.OFF
            }
        return found


def wanted(one: Object) -> dict[tuple[str, str], Power]:
    """Return the machine that an object should have, and what that should be."""
    power = POWERS.get((one.kind, one.state))
    if power is None:
        return {}
    at = msgspec.json.decode(one.seen, type=PlacementSeen)
    return {(at.node, at.machine): power}


POWERS = {
    (VM.kind, "RUNNING"): Power.ON,
    (VM.kind, "PAUSED"): Power.FROZEN,
    (CLOUDSPACE.kind, "DEPLOYED"): Power.ON,
    (CLOUDSPACE.kind, "DISABLED"): Power.ON,
}


async def outcome(asking: Any) -> Accepted | None:
    """Return what was accepted; None if it was denied."""
    try:
        accepted: Accepted = await asking
    except Denied:
        return None
    return accepted


@pytest.fixture
def opened(new_store: Callable[[], Store], tmp_path: Path) -> Iterator[tuple[asyncio.Runner, Cloud]]:
    """A cloud on a loop of its own, for a test that is none of asyncio's."""
    stack = AsyncExitStack()
    with asyncio.Runner() as runner:
        cloud = runner.run(_entered(stack, new_store, tmp_path))
        yield runner, cloud
        runner.run(stack.aclose())


async def _entered(stack: AsyncExitStack, new_store: Callable[[], Store], folder: Path) -> Cloud:
    return await stack.enter_async_context(open_cloud(new_store(), folder))


@pytest.mark.parametrize("examples", in_long_form((5, 15), short=(5,)))
def test_the_domain_does_what_the_model_does(opened: tuple[asyncio.Runner, Cloud], examples: int) -> None:
    runner, cloud = opened

    class Life(RuleBasedStateMachine):
        """Random actions on a few objects; each example has a namespace of its own."""

        @initialize()
        def create_base_objects(self) -> None:
            self.world = World(cloud.in_new_namespace())
            runner.run(self.world.create_base_objects())
            runner.run(self.world.new_vm(self.world.cloud.box))

        @rule(step=STEPS, pick=PICKS, what=PICKS, other=PICKS, admin=st.booleans(), mood=MOODS)
        def go_on(self, step: str, pick: int, what: int, other: int, admin: bool, mood: str) -> None:
            runner.run(self.world.step(step, pick, what, other, "admin" if admin else "user", mood))

        @invariant()
        def agrees(self) -> None:
            if hasattr(self, "world"):
                runner.run(self.world.agrees())

    run_state_machine_as_test(Life, settings=settings(CHECKED, max_examples=examples))


ROUNDS = 2


@pytest.mark.parametrize("number", in_long_form((200, 1000), short=(200,)))
def test_many_objects_at_once_end_as_the_model_says(opened: tuple[asyncio.Runner, Cloud], number: int) -> None:
    runner, cloud = opened
    runner.run(_many(World(cloud.in_new_namespace()), Random(7), number))


async def _many(world: World, chance: Random, number: int) -> None:
    await world.create_base_objects()
    cloud, things = world.cloud, world.model.things
    boxes = await asyncio.gather(*(cloud.new_box() for _ in range(number // 50)))
    things.update((box, Thing("cloudspace", "DEPLOYED", cloud.account, cloud.account)) for box in boxes)
    await asyncio.gather(*(world.new_vm(boxes[one % len(boxes)]) for one in range(number * 3 // 10)))
    await asyncio.gather(*(world.new_disk(cloud.account) for _ in range(number * 38 // 100)))
    assert len(things) >= number
    for _ in range(ROUNDS):
        await asyncio.gather(*(world.do(*asked) for asked in _round(world.model, chance)))
        await world.agrees()


def _round(model: Model, chance: Random) -> Iterator[tuple[str, str, str, str]]:
    """Choose one thing to be done to each object, such that no two of them are about the same one."""
    taken: set[str] = set()
    boxes = [id_ for id_, one in model.things.items() if one.kind == "cloudspace"]
    for box in chance.sample(boxes, len(boxes) // 4):  # with all that is below them
        taken |= {box} | {id_ for id_, _ in model.below(box)}
        yield box, chance.choice(list(TABLE["cloudspace"])), chance.choice(["user", "admin"]), ""
    for id_, one in list(model.things.items()):
        if id_ in taken or one.kind not in ("vm", "disk") or one.vm in taken:
            continue
        yield from _asked(model, chance, id_, one, taken)


def _asked(model: Model, chance: Random, id_: str, one: Thing, taken: set[str]) -> Iterator[tuple[str, str, str, str]]:
    action = chance.choice([action for action in TABLE[one.kind] if action != "add disk"])
    taken |= {id_, *(disk for disk, _ in model.disks(id_))} if one.kind == "vm" else {id_, one.vm}
    disk = ""
    if action in ("attach disk", "detach disk"):
        free = [other for other, it in model.things.items() if it.kind == "disk" and other not in taken and not it.vm]
        own = [other for other, it in model.disks(id_) if not it.boot]
        choice = free if action == "attach disk" else own
        if not choice:
            return
        disk = chance.choice(choice)
        taken.add(disk)
    yield id_, action, chance.choice(["user", "admin"]), disk
