"""The contract of `ensure` and `remove`: resources have keys, are created once, and stay while machines use them."""

import asyncio

import msgspec
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
from tests.contract.drivers.driver_case import DriverCase, is_done, refused, wait_for_state, wait_until_gone

NETWORK = CloudResource(ResourceKind.NETWORK, "net-key", "net", facts={"cidr": "10.1.0.0/16"})
RULES = '[{"direction":"inbound","protocol":"tcp","ports":"22","cidr":"0.0.0.0/0"}]'


SSH = {"direction": "inbound", "protocol": "tcp", "ports": "22", "cidr": "10.2.0.0/16"}
WEB = {"direction": "inbound", "protocol": "tcp", "ports": "80,8000-8080", "cidr": "0.0.0.0/0"}
ALL_ICMP = {"direction": "inbound", "protocol": "icmp", "ports": "", "cidr": "10.2.0.0/16"}
OUTBOUND = {"direction": "outbound", "protocol": "udp", "ports": "53", "cidr": "10.3.0.0/16"}


def group_with(network: CloudResource, *rules: dict[str, str]) -> CloudResource:
    """Return a security group with rules."""
    facts = {"rules": msgspec.json.encode(rules).decode()}
    return CloudResource(ResourceKind.SECURITY_GROUP, "group-key", "group", network.native_id, facts)


def other_resources(network_id: str) -> list[CloudResource]:
    """Return one resource of each kind but networks."""
    return [
        CloudResource(ResourceKind.SUBNET, "subnet-key", "subnet", network_id, {"cidr": "10.1.1.0/24"}),
        CloudResource(ResourceKind.SECURITY_GROUP, "group-key", "group", network_id, {"rules": RULES}),
        CloudResource(ResourceKind.SSH_KEY, "ssh-key", "key"),
    ]


async def ensure(driver: Driver, resource: CloudResource) -> CloudResource:
    """Create a resource, and return it with its id."""
    outcome = await driver.ensure(resource)
    assert isinstance(outcome, (CallAccepted, AlreadyDone)), outcome
    assert outcome.native_id
    return replace(resource, native_id=outcome.native_id)


class ResourceContract:
    """What holds for resources."""

    async def test_where_there_are_no_parts_they_are_refused(self, case: DriverCase) -> None:
        driver = case.driver()
        outcome = await driver.ensure(NETWORK)
        assert is_done(outcome) if driver.caps.has_resources else refused(outcome, RefusalReason.UNABLE)

    @pytest.mark.parametrize("kind", list(ResourceKind))
    async def test_a_part_that_is_ensured_twice_is_made_once(self, case: DriverCase, kind: ResourceKind) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        network = await ensure(driver, NETWORK)
        resource = next(one for one in [NETWORK, *other_resources(network.native_id)] if one.kind is kind)
        first = await ensure(driver, resource)
        again = await driver.ensure(resource)
        assert isinstance(again, AlreadyDone), again
        assert again.native_id == first.native_id

    async def test_concurrent_ensures_of_one_part_make_one(self, case: DriverCase) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        made = await asyncio.gather(*(ensure(driver, NETWORK) for _ in range(4)))
        assert len({resource.native_id for resource in made}) == 1

    async def test_parts_are_listed_by_their_keys_for_as_long_as_they_are_there(self, case: DriverCase) -> None:
        driver = case.driver()
        assert (
            (await driver.list_resources()).resources == []
            if driver.caps.has_resources
            else (await driver.list_resources()).complete
        )
        if not driver.caps.has_resources:
            return
        network = await ensure(driver, NETWORK)
        made = [network, *[await ensure(driver, resource) for resource in other_resources(network.native_id)]]
        listing = await driver.list_resources()
        assert listing.complete, listing.problem
        shown = {(one.kind, one.key, one.native_id) for one in listing.resources}
        assert shown == {(one.kind, one.key, one.native_id) for one in made}
        subnets = [one.within for one in listing.resources if one.kind is ResourceKind.SUBNET]
        assert subnets == [network.native_id]  # by that it is known whose a subnet is that no record has
        for resource in reversed(made):
            await driver.remove(resource)
        assert await driver.list_resources() == ResourceListing([], complete=True)

    async def test_a_new_key_pair_tells_its_secret_once(self, case: DriverCase) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        key = CloudResource(ResourceKind.SSH_KEY, "ssh-key", "key")
        first, again = await driver.ensure(key), await driver.ensure(key)
        assert isinstance(first, CallAccepted)
        assert "PRIVATE KEY" in first.secret
        assert isinstance(again, AlreadyDone)

    async def test_a_part_that_is_removed_twice_is_already_gone(self, case: DriverCase) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        network = await ensure(driver, NETWORK)
        assert isinstance(await driver.remove(network), CallAccepted)
        assert isinstance(await driver.remove(network), AlreadyDone)

    async def test_a_part_that_never_was_is_already_gone(self, case: DriverCase) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        assert isinstance(await driver.remove(NETWORK), AlreadyDone)

    async def test_a_security_group_gets_exactly_the_wanted_rules(self, case: DriverCase) -> None:
        """A rule that is added again shows that it was gone; a rule that stayed would be done already."""
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        network = await ensure(driver, NETWORK)
        first = await ensure(driver, group_with(network, SSH, WEB))
        for rules in ((SSH,), (SSH, WEB), (WEB, OUTBOUND), (WEB,), (WEB, OUTBOUND), (), (SSH, ALL_ICMP), (ALL_ICMP,)):
            changed = await driver.ensure(group_with(network, *rules))
            assert changed == CallAccepted(first.key, first.native_id), (rules, changed)
            again = await case.driver().ensure(group_with(network, *reversed(rules)))
            assert again == AlreadyDone(first.key, first.native_id), (rules, again)

    async def test_bad_rules_are_refused_and_change_nothing(self, case: DriverCase) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        network = await ensure(driver, NETWORK)
        await ensure(driver, group_with(network, SSH))
        for bad in ({**SSH, "ports": "70000"}, {**SSH, "protocol": "telepathy"}, {**SSH, "cidr": "10.0.0.0/33"}):
            assert refused(await driver.ensure(group_with(network, WEB, bad)), RefusalReason.INVALID), bad
        assert isinstance(await driver.ensure(group_with(network, SSH)), AlreadyDone)

    async def test_a_part_is_removed_by_its_key_where_its_id_is_not_known(self, case: DriverCase) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        await ensure(driver, NETWORK)
        assert isinstance(await driver.remove(NETWORK), CallAccepted)
        assert isinstance(await driver.remove(NETWORK), AlreadyDone)

    async def test_a_network_that_has_a_subnet_cannot_be_removed(self, case: DriverCase) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        network = await ensure(driver, NETWORK)
        subnet = await ensure(driver, other_resources(network.native_id)[0])
        assert refused(await driver.remove(network), RefusalReason.IN_USE)
        await driver.remove(subnet)
        assert isinstance(await driver.remove(network), CallAccepted)

    async def test_a_subnet_of_no_network_is_refused(self, case: DriverCase) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        orphan = other_resources("no-such-network")[0]
        assert refused(await driver.ensure(orphan), RefusalReason.NOT_FOUND, RefusalReason.INVALID)

    async def test_what_a_machine_stands_on_cannot_be_removed_until_it_is_gone(self, case: DriverCase) -> None:
        driver = case.driver()
        if not driver.caps.has_resources:
            return
        network = await ensure(driver, NETWORK)
        resources = [network, *[await ensure(driver, resource) for resource in other_resources(network.native_id)]]
        machine_spec = replace(
            case.machine_spec(), resources={resource.kind: resource.native_id for resource in resources}
        )
        await driver.create([machine_spec])
        await wait_for_state(driver, case, machine_spec.key, MachineState.RUNNING)
        for resource in resources[:3]:
            assert refused(await driver.remove(resource), RefusalReason.IN_USE), resource.kind
        await driver.act(MachineAction.TERMINATE, [MachineHandle(machine_spec.key)])
        await wait_until_gone(driver, case, machine_spec.key)
        for resource in reversed(resources):
            assert isinstance(await driver.remove(resource), CallAccepted), resource.kind
