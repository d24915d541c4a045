"""Every view, on a server with sample objects: it shows its data, without errors and without problems of access."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import AUDIT, PageErrors, signed_in
from tests.console.server_process import ConsoleServer

VIEWS = {
    # view            what it shows
    "overview":       ("Fleet map", "Lifecycle", "Latest", "Stuck", "Lanes", "transitions/s"),
    "objects":        ("acme-prod", "namespace", "more below"),
    "object/demo/ledger": ("RUNNING", "It waits for nothing.", "acme-prod", "ledger-data", "Timeline"),
    "mci":            ("Partial-Running:7 (R:7/9)", "Running:2 (R:2/2)", "azure/westeurope", "db-1"),
    "edge":           ("oslo", "2.3.9 → 2.4.1", "connected to north", "the new agent did not call"),
    "ovc":            ("Recycle bin", "old-web", "6.2 d", "Restore", "acme-prod"),
    "leases":         ("Calendar", "host-1", "gpu-day", "All leases"),
    "systems":        ("rates", "2 of 3 instances", "Locks of billing", "waits:"),
    "queues":         ("deploy-1", "locks are held by"),
    "lanes":          ("aws/ap-northeast-2", "of 3 lanes active at once"),
    "workers":        ("alive", "Nothing is stuck."),
    "timers":         ("old-web", "destroy"),
    "journal":        ("newest first", "sample data"),
    "access":         ("admin", "mci.vm: 500", "New token"),
}  # fmt: skip

LAPTOP: Any = {"width": 1440, "height": 900}
PHONE: Any = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def opened(browser: Browser, server: ConsoleServer) -> Iterator[tuple[Page, PageErrors]]:
    with signed_in(browser, server.url, server.token) as (_, page, page_errors):
        yield page, page_errors


@pytest.fixture(scope="module")
def empty(browser: Browser, empty_server: ConsoleServer) -> Iterator[Page]:
    with signed_in(browser, empty_server.url, empty_server.token) as (_, page, _):
        yield page


def visit(page: Page, view: str, least: int = 99) -> None:
    """Go to a view and wait until it shows what it is for."""
    page.evaluate("view => { location.hash = '#/' + view }", view)
    for text in VIEWS[view][:least]:
        expect(page.locator("main").get_by_text(text).first).to_be_visible()


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_what_it_is_for_and_nobody_complains(opened: tuple[Page, PageErrors], view: str) -> None:
    page, page_errors = opened
    page.set_viewport_size(LAPTOP)
    visit(page, view)
    assert page_errors.errors == []
    assert page_errors.outside == []
    assert page.evaluate("window.violations") == []


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_can_be_used_by_everybody(opened: tuple[Page, PageErrors], axe: str, view: str, theme: Any) -> None:
    page, _ = opened
    page.set_viewport_size(LAPTOP)
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe)
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    visit(page, view)
    assert page.evaluate(AUDIT) == []


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_on_a_phone(opened: tuple[Page, PageErrors], view: str) -> None:
    page, _ = opened
    page.set_viewport_size(PHONE)
    visit(page, view, 1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize(
    ("view", "text"),
    [
        ("overview", "There is nothing yet."),
        ("objects", "There are no objects yet."),
        ("object/demo/none", "none is not there"),
        ("mci", "There is no MCI yet."),
        ("edge", "There is no cloudlet yet."),
        ("ovc", "The bin is empty."),
        ("leases", "Nothing is reserved"),
        ("systems", "There is no system yet."),
        ("queues", "Nothing is under way"),
        ("lanes", "No lane has work or a limit yet."),
        ("timers", "No timer is set."),
        ("access", "No namespace has a quota."),
    ],
)
def test_where_there_is_nothing_a_view_says_what_to_do_next(empty: Page, view: str, text: str) -> None:
    empty.evaluate("view => { location.hash = '#/' + view }", view)
    expect(empty.locator("main").get_by_text(text).first).to_be_visible()
