"""Operations in the console: the list with its filters, and the timeline of one, live."""

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.console.browser import PageErrors, signed_in
from tests.console.server_process import ConsoleServer, run_console_server


def visit(page: Page, view: str) -> None:
    page.evaluate("view => { location.hash = '#/' + view }", view)


def operation_of(server: ConsoleServer, name: str) -> dict[str, Any]:
    """Return the newest operation of an object."""
    found: dict[str, Any] = server.call("GET", f"/ns/demo/operations?object={name}")["items"][0]
    return found


def test_operations_are_listed_and_chosen_by_status(opened: tuple[Page, PageErrors]) -> None:
    page, page_errors = opened
    visit(page, "operations")
    expect(page.get_by_role("row").filter(has_text="deploy-2")).to_contain_text("waiting")
    page.get_by_label("Status", exact=True).select_option("running")
    expect(page.get_by_role("row").filter(has_text="deploy-1")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="deploy-2")).to_have_count(0)
    assert "status=running" in page.url
    page.get_by_label("Status", exact=True).select_option("cancelled")
    expect(page.get_by_text("No operations match.")).to_be_visible()
    assert page_errors.errors == []


def test_an_action_on_many_objects_comes_in_live_as_one_entry(
    opened: tuple[Page, PageErrors], server: ConsoleServer
) -> None:
    page, _ = opened
    visit(page, "operations?action=suspend")
    expect(page.get_by_text("No operations match.")).to_be_visible()
    group = server.call("POST", "/ns/demo/actions/suspend", {"selector": {"kind": "mci.vm", "parent": "lab"}})
    row = page.get_by_role("row").filter(has_text="lab.node-1 and 1 more")
    expect(row).to_contain_text("succeeded")
    expect(row).to_contain_text("2 of 2")
    visit(page, f"operation/demo/{group['group']}")
    expect(page.get_by_role("heading", name="suspend lab.node-1 and 1 more")).to_be_visible()
    page.get_by_role("link", name="all parts").click()
    expect(page.get_by_role("row").filter(has_text="lab.node-2")).to_be_visible()


def test_a_running_operation_shows_its_time_its_progress_and_who_works_on_it(
    opened: tuple[Page, PageErrors], server: ConsoleServer
) -> None:
    page, page_errors = opened
    visit(page, f"operation/demo/{operation_of(server, 'deploy-1')['id']}")
    expect(page.get_by_text(re.compile("work(s|ed) on it"))).to_be_visible()
    expect(page.get_by_role("meter", name="Progress")).to_be_visible()
    expect(page.locator(".bars .span-attempt[data-status=running] .bar.open")).to_be_visible()
    expect(page.get_by_text("deploy by ann")).to_be_visible()
    assert page_errors.errors == []


def test_waiting_is_told_apart_from_working_and_a_waiting_operation_can_be_cancelled(
    browser: Browser, tmp_path: Path
) -> None:
    with (
        run_console_server(tmp_path / "data", "--cells", "0") as server,
        signed_in(browser, server.url, server.token) as (_, page, _),
    ):
        visit(page, f"operation/demo/{operation_of(server, 'deploy-2')['id']}")
        expect(page.locator(".bars .span-wait[data-status=waiting] .bar.hatched")).to_be_visible()
        expect(page.locator(".sentence")).to_contain_text("locks are held by")
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_role("button", name="Cancel the operation").click()
        expect(page.locator(".who-is")).to_contain_text("cancelled")
        expect(page.get_by_role("button", name="Cancel…")).to_have_count(0)


def test_an_unknown_operation_gets_a_page_that_helps(opened: tuple[Page, PageErrors]) -> None:
    page, _ = opened
    visit(page, "operation/demo/none")
    expect(page.get_by_text("There is no operation none in demo.")).to_be_visible()
    expect(page.get_by_role("link", name="All operations")).to_be_visible()
