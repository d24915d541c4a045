"""The page of one object: the answers first, the actions that make sense now, changes, and what is not there."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import PageErrors, signed_in
from tests.console.server_process import ConsoleServer


@pytest.fixture
def opened(browser: Browser, server: ConsoleServer) -> Iterator[tuple[Page, PageErrors]]:
    with signed_in(browser, server.url, server.token, width=390, height=844) as (_, page, page_errors):
        yield page, page_errors


def visit(page: Page, view: str) -> None:
    page.evaluate("view => { location.hash = '#/' + view }", view)


def test_the_page_answers_first_what_is_going_on(opened: tuple[Page, PageErrors]) -> None:
    page, _ = opened
    visit(page, "object/demo/deploy-1")
    now = page.locator(".card-now")
    for text in ("pending", "deploy", "running", "by ann", "worked on it"):
        expect(now.get_by_text(text).first).to_be_visible()
    expect(now.get_by_role("meter", name="Progress")).to_be_visible()
    assert now.evaluate("card => card.getBoundingClientRect().top") < 250
    visit(page, "object/demo/broken")
    expect(now.get_by_text("node-1 has no memory left for 8192 MB")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_few_actions_are_offered_and_the_rest_are_in_a_menu(
    opened: tuple[Page, PageErrors], server: ConsoleServer
) -> None:
    page, page_errors = opened
    visit(page, "object/demo/ledger")
    now = page.locator(".card-now")
    expect(now.get_by_text("last operation")).to_be_visible()
    assert now.locator(".body > .actions > button").count() <= 4
    expect(now.locator(".body > .actions > [aria-disabled=true]")).to_have_count(0)
    expect(now.get_by_role("button", name="Resume", exact=True)).to_be_hidden()
    now.get_by_text("More actions").click()
    expect(now.get_by_role("button", name="Resume", exact=True)).to_be_visible()
    server.call("POST", "/ns/demo/objects/ledger/actions/stop?wait=30", {})
    expect(now.get_by_text("took ").first).to_be_visible()  # a redraw shows the line twice for a moment
    took = str(now.get_by_text("by admin").first.text_content()).rpartition("took ")[2]
    expect(page.locator(".card-operation tr, .card-operations tr", has_text="stop").first).to_contain_text(took)
    now.get_by_role("link", name="stop").click()
    expect(page.get_by_role("heading", name="stop ledger")).to_be_visible()
    assert page_errors.errors == []


def test_an_object_tells_what_protects_it_and_how_that_is_lifted(
    opened: tuple[Page, PageErrors], server: ConsoleServer
) -> None:
    page, page_errors = opened
    visit(page, "object/demo/broken")
    shield, panel = page.locator(".who-is .protected"), page.locator(".card-protection")
    expect(panel.get_by_role("button", name="Protect…")).to_be_visible()
    for path, by in (("objects/acme-prod/protection", "acme-prod"), ("protection", "namespace demo")):
        server.call("PUT", f"/ns/demo/{path}", {"protected": True, "reason": "audit"})
        visit(page, "object/demo/ledger")
        visit(page, "object/demo/broken")
        expect(shield).to_have_text(f"protected by {by}")
        expect(panel).to_contain_text(f"Protection is set on {'the ' if by != 'acme-prod' else ''}{by}.")
        expect(panel.get_by_role("button", name="Protect…")).to_have_count(0)
        server.call("PUT", f"/ns/demo/{path}", {"protected": False})
    assert page_errors.errors == []


def test_a_deletion_that_can_be_restored_says_so_and_dialogs_close_with_their_view(
    opened: tuple[Page, PageErrors],
) -> None:
    page, _ = opened
    tone = "async () => (await import('/console/ui/states.js')).toneOf('Suspending', 'transitional')"
    assert page.evaluate(tone) == "moving"
    visit(page, "object/demo/ledger")
    visit(page, "object/demo/host-1")
    visit(page, "object/demo/builder")
    expect(page.get_by_role("button", name="Delete (can be restored)")).not_to_have_class("danger")
    page.get_by_role("button", name="Protect…").click()
    expect(page.locator("#question")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="host-1")).to_be_visible()
    expect(page.locator("#question")).to_be_hidden()
    page.get_by_role("button", name="Protect…").click()
    page.locator("#question").get_by_label("reason").fill("for the audit")
    page.go_back()  # the question whether to lose the text is answered with no
    expect(page.locator(".who-is h1")).not_to_have_text("host-1")
    expect(page.locator("#question").get_by_label("reason")).to_have_value("for the audit")
    page.locator("#question").get_by_role("button", name="Cancel").click()


def test_changes_of_the_spec_are_told_field_by_field(opened: tuple[Page, PageErrors], server: ConsoleServer) -> None:
    page, _ = opened
    spec = {"provider": "ovc", "region": "node-3"}
    server.call("POST", "/ns/demo/objects/builder/actions/start?wait=30", {"spec": spec})
    server.call("POST", "/ns/demo/objects/builder/actions/stop?wait=30", {"spec": {**spec, "region": "node-9"}})
    visit(page, "object/demo/builder")
    changes = page.locator(".card-changes")
    expect(changes.get_by_text("node-9")).to_be_visible()
    expect(changes.get_by_text("admin").first).to_be_visible()


def test_an_object_that_was_never_there_gets_the_nearest_names(opened: tuple[Page, PageErrors]) -> None:
    page, _ = opened
    visit(page, "object/demo/ledgr-data")
    expect(page.get_by_text("and the journal has none of this name")).to_be_visible()
    page.get_by_role("link", name="ledger-data").click()
    expect(page.get_by_role("heading", name="ledger-data")).to_be_visible()


def test_a_deleted_object_tells_when_and_by_whom(opened: tuple[Page, PageErrors], server: ConsoleServer) -> None:
    page, _ = opened
    server.call("POST", "/ns/demo/objects/tromso/actions/delete?wait=30", {})
    visit(page, "object/demo/tromso")
    expect(page.get_by_text("tromso no longer exists.")).to_be_visible()
    expect(page.locator("main .empty")).to_contain_text("by admin")


def test_an_unknown_address_gets_a_page_that_helps(opened: tuple[Page, PageErrors]) -> None:
    page, _ = opened
    visit(page, "jurnal")
    expect(page.get_by_text("The console has no view of this name.")).to_be_visible()
    page.get_by_role("link", name="journal", exact=True).click()
    expect(page.get_by_text("newest first")).to_be_visible()


def test_the_journal_is_chosen_by_time_and_exported_as_a_table(opened: tuple[Page, PageErrors], tmp_path: Path) -> None:
    page, _ = opened
    page.set_viewport_size({"width": 1280, "height": 900})
    visit(page, "journal?object=acme&until=2020-01-01T00:00:00")
    expect(page.get_by_text("No entries match.")).to_be_visible()
    visit(page, "journal?object=acme&since=2020-01-01T00:00:00")
    expect(page.get_by_role("row").filter(has_text="sample data")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export CSV").click()
    file = tmp_path / "journal.csv"
    download.value.save_as(file)
    (row,) = csv.DictReader(file.read_text("utf-8").splitlines())
    assert (row["object"], row["who"]) == ("acme", "sample data")
