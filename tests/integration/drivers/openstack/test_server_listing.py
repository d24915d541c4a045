"""Listings of servers: when pages prove that a server is absent, in a real Nova and with pages to order."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from stateward.drivers import AlreadyDone, CallRefused, ProviderRegion, RefusalReason, TransientFailure
from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.openstack import OpenStackDriver
from stateward.drivers.openstack.client import ApiCall, OpenStackClient
from stateward.drivers.openstack.listing import LEAST_PAGE_SIZE, ServerLister
from stateward.drivers.openstack.sdk import HttpAnswer
from stateward.drivers.openstack.states import key_of
from tests.integration.drivers.openstack.breaking_proxy import BreakingProxy, BreakKind
from tests.integration.drivers.openstack.nova_server import PAGE, NovaClient
from tests.integration.drivers.openstack.nova_worlds import create_machines, new_machine_specs

LIST = r"GET .*/servers/detail"
HALF = LEAST_PAGE_SIZE // 2
DOWN = {"id": "1", "status": "UNKNOWN", "tenant_id": "p", "created": "2026-01-01T00:00:00Z", "links": []}


def server(number: int, task: str | None = None) -> dict[str, Any]:
    status = "BUILD" if task else "ACTIVE"
    return {
        "id": str(number),
        "status": status,
        "metadata": {"stateward:key": f"key-{number}"},
        "OS-EXT-STS:task_state": task,
    }


def servers(first: int, last: int, task: str | None = None) -> list[dict[str, Any]]:
    return [server(number, task) for number in range(first, last + 1)]


class PagedCloud(OpenStackClient):
    """Answers with pages by their markers, and with servers by their ids."""

    def __init__(self, pages: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        super().__init__(ProviderRegion("openstack", "RegionOne"), lambda _: None)
        self.answers = dict(pages)
        self.linked: set[str] = set()
        self.servers: dict[str, Mapping[str, Any]] = {}
        self.asked: list[Mapping[str, str]] = []

    async def call(self, call: ApiCall) -> HttpAnswer:
        native = call.path.rpartition("/")[2]
        if native != "detail":
            if native not in self.servers:
                refusal = CallRefused("", RefusalReason.NOT_FOUND, "there is none")
                raise CloudCallFailed(call.name, "404", refusal)
            return HttpAnswer(200, {}, {"server": self.servers[native]})
        self.asked.append(call.params)
        marker = call.params.get("marker", "")
        links = [{"rel": "next", "href": "http://nova/servers/detail?marker=x"}] if marker in self.linked else []
        return HttpAnswer(200, {}, {"servers": self.answers[marker], "servers_links": links})


async def numbers_in(cloud: PagedCloud) -> list[int]:
    listing = (await ServerLister(cloud).list_servers()).listing()
    assert listing.complete, listing.problem
    return [int(one.native_id) for one in listing.machines]


async def test_a_page_without_a_link_may_still_not_be_the_last() -> None:
    cloud = PagedCloud({"": servers(1, HALF), str(HALF): servers(HALF + 1, 70), "70": []})
    assert await numbers_in(cloud) == list(range(1, 71))


async def test_a_page_so_short_that_it_cannot_have_been_full_is_the_last() -> None:
    cloud = PagedCloud({"": servers(1, HALF - 1)})
    assert len(await numbers_in(cloud)) == HALF - 1
    assert cloud.asked == [{}]


async def test_a_short_page_with_a_link_is_not_the_last() -> None:
    cloud = PagedCloud({"": servers(1, 3), "3": servers(4, 5)})
    cloud.linked = {""}
    assert await numbers_in(cloud) == [1, 2, 3, 4, 5]


async def test_no_page_of_a_full_listing_is_asked_for_with_a_limit_or_a_time() -> None:
    cloud = PagedCloud({"": servers(1, 60), "60": []})
    await numbers_in(cloud)
    assert cloud.asked == [{}, {"marker": "60"}]  # the first one must tell of cells that are down


async def test_the_next_page_begins_after_a_server_that_is_in_a_cell() -> None:
    first = [*servers(1, 40, "scheduling"), *servers(41, 50), *servers(51, 60, "scheduling")]
    cloud = PagedCloud({"": first, "50": servers(51, 61), "61": []})
    assert await numbers_in(cloud) == list(range(1, 62))


async def test_a_building_server_that_has_a_host_is_in_a_cell() -> None:
    cloud = PagedCloud({"": servers(1, 60, "spawning"), "60": []})
    assert len(await numbers_in(cloud)) == 60


async def test_a_page_of_servers_that_are_in_no_cell_leaves_the_listing_incomplete() -> None:
    listing = await ServerLister(PagedCloud({"": servers(1, 60, "scheduling")})).list_servers()
    assert len(listing.machines) == 60
    assert "servers are being scheduled" in listing.listing().problem


async def test_where_a_policy_hides_the_tasks_every_building_server_may_be_in_no_cell() -> None:
    hidden = [{**one, "status": "BUILD"} for one in servers(1, 60)]
    for one in hidden:
        del one["OS-EXT-STS:task_state"]
    assert not (await ServerLister(PagedCloud({"": hidden})).list_servers()).listing().complete


async def test_pages_that_never_end_are_no_listing() -> None:
    listing = await ServerLister(PagedCloud({"": servers(1, 60), "60": servers(1, 60)})).list_servers()
    assert not listing.listing().complete


async def test_a_known_server_that_several_pages_do_not_show_must_be_gone() -> None:
    cloud = PagedCloud({"": servers(1, 60), "60": servers(61, 65), "65": []})
    lister = ServerLister(cloud)
    assert (await lister.list_servers()).failed is None
    cloud.answers["60"], cloud.answers["64"] = servers(61, 64), []
    cloud.servers["65"] = {**DOWN, "id": "65"}
    listing = (await lister.list_servers()).listing()
    assert (listing.complete, "the server 65 exists" in listing.problem) == (False, True)
    del cloud.servers["65"]
    assert (await lister.list_servers()).failed is None


async def test_an_answer_without_servers_is_not_an_empty_listing(driver: OpenStackDriver, proxy: BreakingProxy) -> None:
    proxy.lose(BreakKind.ERROR, LIST, status=200, body="<html>busy</html>")
    listing = await driver.observe()
    assert (listing.complete, "the answer has no servers" in listing.problem) == (False, True)


async def test_changes_are_asked_for_from_some_minutes_before() -> None:
    cloud = PagedCloud({"": []})
    await ServerLister(cloud).list_changes(datetime(2026, 1, 1, tzinfo=UTC), ["key"])
    assert cloud.asked == [{"changes-since": "2025-12-31T23:55:00Z"}]


def test_a_deleted_server_has_its_key_in_the_description_alone() -> None:
    described = {"description": "stateward:key-1", "metadata": {}}
    assert key_of({**described, "status": "DELETED"}) == "key-1"
    assert key_of({**described, "status": "ACTIVE"}) == ""  # its owner may have taken the key away


async def test_a_listing_with_servers_of_a_cell_that_is_down_is_incomplete() -> None:
    listing = (await ServerLister(PagedCloud({"": [DOWN, *servers(2, 3)]})).list_servers()).listing()
    assert (listing.complete, len(listing.machines)) == (False, 2)
    assert "1 servers are in a cell that does not answer" in listing.problem


async def test_pages_of_servers_in_no_cell_are_incomplete_and_what_they_show_is_not_made_again(
    driver: OpenStackDriver, nova: NovaClient, hold: Path
) -> None:
    hold.touch()
    wanted = new_machine_specs(PAGE + 1, fake_hold_scheduler=str(hold))
    await driver.create(wanted)
    listing = await driver.observe()
    assert (listing.complete, len(listing.machines)) == (False, PAGE)
    outcomes = await driver.create(wanted)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == [
        *(AlreadyDone.__name__ for _ in range(PAGE)),
        TransientFailure.__name__,
    ]
    nova.clear()  # before any host has had work with them


@pytest.mark.long
async def test_a_page_that_nova_has_shortened_hides_no_server(
    driver: OpenStackDriver, proxy: BreakingProxy, nova: NovaClient, hold: Path
) -> None:
    handles = await create_machines(driver, PAGE - 2)
    hold.touch()
    wanted = new_machine_specs(2, fake_hold_cell=str(hold))
    await driver.create(wanted)
    while len(page := nova.get("/compute/v2.1/servers/detail")["servers"]) != PAGE - 2:
        await asyncio.sleep(0.1)  # until both are in their cell: Nova then drops two of the page, and adds no others
    assert {one["metadata"]["stateward:key"] for one in page} > {want.key for want in wanted}
    listing = await driver.observe()
    assert listing.complete
    assert {one.key for one in listing.machines} == {*(one.key for one in handles), *(one.key for one in wanted)}
    proxy.lose(BreakKind.LOST_REQUEST, LIST, skip=1)
    listing = await driver.observe()
    assert (listing.complete, len(listing.machines), "ListServers" in listing.problem) == (False, PAGE - 2, True)
