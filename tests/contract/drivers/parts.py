"""Parts: found by their keys, made once, and not removed from under those who stand on them."""

import asyncio

import pytest
from msgspec.structs import replace

from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CloudResource,
    Driver,
    MachineAction,
    MachineHandle,
    MachineState,
    RefusalReason,
    ResourceKind,
    ResourceListing,
)
from tests.contract.drivers.case import Case, agreed, refused, until, until_gone

NETWORK = CloudResource(ResourceKind.NETWORK, "net-key", "net", facts={"cidr": "10.1.0.0/16"})
RULES = '[{"direction":"inbound","protocol":"tcp","ports":"22","cidr":"0.0.0.0/0"}]'


def the_parts(network_id: str) -> list[CloudResource]:
    """Return one part of each other kind."""
    return [
        CloudResource(ResourceKind.SUBNET, "subnet-key", "subnet", network_id, {"cidr": "10.1.1.0/24"}),
        CloudResource(ResourceKind.SECURITY_GROUP, "group-key", "group", network_id, {"rules": RULES}),
        CloudResource(ResourceKind.SSH_KEY, "ssh-key", "key"),
    ]


async def ensured(driver: Driver, part: CloudResource) -> CloudResource:
    """Make a part and return it with its id."""
    outcome = await driver.ensure(part)
    assert isinstance(outcome, (CallAccepted, AlreadyDone)), outcome
    assert outcome.native_id
    return replace(part, native_id=outcome.native_id)


class Parts:
    """What `ensure` and `remove` keep to."""

    async def test_where_there_are_no_parts_they_are_refused(self, case: Case) -> None:
        driver = case.driver()
        outcome = await driver.ensure(NETWORK)
        assert agreed(outcome) if driver.caps.has_resources else refused(outcome, RefusalReason.UNABLE)

    @pytest.mark.parametrize("kind", list(ResourceKind))
    async def test_a_part_that_is_ensured_twice_is_made_once(self, case: Case, kind: ResourceKind) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        network = await ensured(driver, NETWORK)
        part = next(one for one in [NETWORK, *the_parts(network.native_id)] if one.kind is kind)
        first = await ensured(driver, part)
        again = await driver.ensure(part)
        assert isinstance(again, AlreadyDone), again
        assert again.native_id == first.native_id

    async def test_concurrent_ensures_of_one_part_make_one(self, case: Case) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        made = await asyncio.gather(*(ensured(driver, NETWORK) for _ in range(4)))
        assert len({part.native_id for part in made}) == 1

    async def test_parts_are_listed_by_their_keys_for_as_long_as_they_are_there(self, case: Case) -> None:
        driver = case.driver()
        assert (
            (await driver.list_resources()).resources == []
            if driver.caps.has_resources
            else (await driver.list_resources()).complete
        )
        if not driver.caps.has_resources:
            return
        network = await ensured(driver, NETWORK)
        made = [network, *[await ensured(driver, part) for part in the_parts(network.native_id)]]
        listing = await driver.list_resources()
        assert listing.complete, listing.problem
        shown = {(one.kind, one.key, one.native_id) for one in listing.resources}
        assert shown == {(one.kind, one.key, one.native_id) for one in made}
        subnets = [one.within for one in listing.resources if one.kind is ResourceKind.SUBNET]
        assert subnets == [network.native_id]  # by that it is known whose a subnet is that no record has
        for part in reversed(made):
            await driver.remove(part)
        assert await driver.list_resources() == ResourceListing([], complete=True)

    async def test_a_new_key_pair_tells_its_secret_once(self, case: Case) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        key = CloudResource(ResourceKind.SSH_KEY, "ssh-key", "key")
        first, again = await driver.ensure(key), await driver.ensure(key)
        assert isinstance(first, CallAccepted)
        assert "PRIVATE KEY" in first.secret
        assert isinstance(again, AlreadyDone)

    async def test_a_part_that_is_removed_twice_is_already_gone(self, case: Case) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        network = await ensured(driver, NETWORK)
        assert isinstance(await driver.remove(network), CallAccepted)
        assert isinstance(await driver.remove(network), AlreadyDone)

    async def test_a_part_that_never_was_is_already_gone(self, case: Case) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        assert isinstance(await driver.remove(NETWORK), AlreadyDone)

    async def test_a_part_is_removed_by_its_key_where_its_id_is_not_known(self, case: Case) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        await ensured(driver, NETWORK)
        assert isinstance(await driver.remove(NETWORK), CallAccepted)
        assert isinstance(await driver.remove(NETWORK), AlreadyDone)

    async def test_a_network_that_has_a_subnet_cannot_be_removed(self, case: Case) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        network = await ensured(driver, NETWORK)
        subnet = await ensured(driver, the_parts(network.native_id)[0])
        assert refused(await driver.remove(network), RefusalReason.IN_USE)
        await driver.remove(subnet)
        assert isinstance(await driver.remove(network), CallAccepted)

    async def test_a_subnet_of_no_network_is_refused(self, case: Case) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        orphan = the_parts("no-such-network")[0]
        assert refused(await driver.ensure(orphan), RefusalReason.NOT_FOUND, RefusalReason.INVALID)

    async def test_what_a_machine_stands_on_cannot_be_removed_until_it_is_gone(self, case: Case) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        network = await ensured(driver, NETWORK)
        parts = [network, *[await ensured(driver, part) for part in the_parts(network.native_id)]]
        want = replace(case.want(), resources={part.kind: part.native_id for part in parts})
        await driver.create([want])
        await until(driver, case, want.key, MachineState.RUNNING)
        for part in parts[:3]:
            assert refused(await driver.remove(part), RefusalReason.IN_USE), part.kind
        await driver.act(MachineAction.TERMINATE, [MachineHandle(want.key)])
        await until_gone(driver, case, want.key)
        for part in reversed(parts):
            assert isinstance(await driver.remove(part), CallAccepted), part.kind
