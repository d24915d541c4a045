"""Every view, on a server with sample objects: it shows its data, without errors."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import PageErrors, signed_in
from tests.console.server_process import ConsoleServer
from tests.console.view_table import VIEWS, visit

LAPTOP: Any = {"width": 1440, "height": 900}
PHONE: Any = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def opened(browser: Browser, server: ConsoleServer) -> Iterator[tuple[Page, PageErrors]]:
    with signed_in(browser, server.url, server.token, motion=True) as (_, page, page_errors):
        yield page, page_errors


@pytest.fixture(scope="module")
def empty(browser: Browser, empty_server: ConsoleServer) -> Iterator[Page]:
    with signed_in(browser, empty_server.url, empty_server.token) as (_, page, _):
        yield page


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_what_it_is_for_and_nobody_complains(opened: tuple[Page, PageErrors], view: str) -> None:
    page, page_errors = opened
    page.set_viewport_size(LAPTOP)
    visit(page, view)
    assert page_errors.errors == []
    assert page_errors.outside == []
    assert page.evaluate("window.violations") == []


@pytest.mark.parametrize("size", [LAPTOP, PHONE])
def test_queues_show_the_whole_reason_who_works_since_when_and_until_when(
    opened: tuple[Page, PageErrors], size: Any
) -> None:
    page, _ = opened
    page.set_viewport_size(size)
    visit(page, "queues")
    reason = page.locator(".queue p", has_text="has worked on it since").first
    expect(reason).to_contain_text("last report at")
    expect(reason).to_contain_text("it may take until")
    cut = "all => all.filter((one) => one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight).length"
    assert page.locator(".queue p").evaluate_all(cut) == 0


def test_of_many_queues_those_are_shown_that_have_been_changing_longest(
    opened: tuple[Page, PageErrors], server: ConsoleServer
) -> None:
    page, _ = opened
    page.set_viewport_size(LAPTOP)
    held = [f"aa-{number}" for number in range(25)]  # the first ones by name, and the last ones by time
    for name in held:
        server.call("POST", "/ns/demo/objects", {"id": name, "kind": "systems.deploy", "spec": {"path": f"/{name}"}})
    visit(page, "queues")
    expect(page.get_by_text("of their queues, the 24 that have been changing longest are shown")).to_be_visible()
    expect(page.locator("main .grid > *")).to_have_count(24)
    expect(page.locator("main .grid > *", has_text="deploy-1").first).to_be_visible()
    for name in held:
        (found,) = server.call("GET", f"/ns/demo/operations?object={name}")["items"]
        server.call("POST", f"/ns/demo/operations/{found['id']}/cancel")
    expect(page.get_by_text("that have been changing longest")).to_have_count(0)


@pytest.mark.parametrize(
    ("view", "text"),
    [
        ("overview", "No objects yet."),
        ("objects", "No objects yet."),
        ("object/demo/none", "There is no object none in demo"),
        ("mci", "No MCIs yet."),
        ("edge", "No cloudlets yet."),
        ("ovc", "The bin is empty."),
        ("leases", "No leases and no hosts yet."),
        ("systems", "No systems yet."),
        ("queues", "No operations are running or waiting."),
        ("lanes", "No lane has work or a limit yet."),
        ("timers", "No pending timers."),
        ("access", "No quotas yet."),
    ],
)
def test_where_there_is_nothing_a_view_says_what_to_do_next(empty: Page, view: str, text: str) -> None:
    empty.evaluate("view => { location.hash = '#/' + view }", view)
    expect(empty.locator("main").get_by_text(text).first).to_be_visible()
